"""Runs PyTorch's tests on the CPU and on the device, and says where they differ.

    python -m tests.upstream.campaign FOLDER [--tests N] [--seed S] [--jobs J] [--files F ...]

FOLDER is the ``test`` folder of a checkout of PyTorch. Of each file N tests are drawn by the seed,
all if 0. What has been run is in build/upstream and is not run again; ``--fresh`` forgets it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.upstream.files import FILES
from tests.upstream.judge import judge
from tests.upstream.record import DIED, FAILED, HUNG, Log
from tests.upstream.report import write

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "build" / "upstream"
LANES: Final[dict[str, dict[str, str]]] = {
    "cpu": {},
    "default": {},
    "compiled": {"FUSE_TIER": "compiled"},
}
"""The CPU comes first: only what passes there is asked of the device."""
START_SECONDS: Final = 600.0
"""For PyTorch's largest files, which make some ten thousand tests as they are imported."""
SECONDS: Final = 1200.0
"""Of silence after which a test hangs: some compile hundreds of sizes."""


def run_file(folder: Path, file: str, lane: str, count: int, seed: int) -> None:
    """Run what is left of a file in one lane, in as many processes as its faults make necessary."""
    results = log_of(file, lane)
    results.path.parent.mkdir(parents=True, exist_ok=True)
    on_cpu = [] if lane == "cpu" else [str(log_of(file, "cpu").path)]
    device = "cpu" if lane == "cpu" else "tpu"
    arguments = [str(folder), file, device, str(count), str(seed), str(results.path), *on_cpu]
    while not results.is_finished():
        before = len(results.begun())
        how = _process(arguments, lane, results)
        test = results.unfinished()
        if test is not None:
            results.ended(test, how, _tail(results.path.with_suffix(".log")))
        elif not results.is_finished() and len(results.begun()) == before:
            results.ended(file, FAILED, _tail(results.path.with_suffix(".log")))
            results.finished()


def _process(arguments: list[str], lane: str, results: Log) -> str:
    """One worker until it ends or says nothing for too long; how it ended."""
    settings = {
        **os.environ,
        **LANES[lane],
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "FUSE_HOST_FALLBACK": "silent",
    }
    with tempfile.TemporaryDirectory() as empty, results.path.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.upstream.worker", *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=empty,
            env=settings,
            start_new_session=True,
        )
        size, since, limit = 0, time.monotonic(), START_SECONDS
        while process.poll() is None:
            now = results.path.stat().st_size if results.path.exists() else 0
            if now != size:
                size, since, limit = now, time.monotonic(), SECONDS
            if time.monotonic() - since > limit:
                process.send_signal(signal.SIGUSR1)  # every thread's stack, into the log
                time.sleep(1.0)
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return HUNG
            time.sleep(0.05)
    return DIED


def _tail(path: Path) -> str:
    """The end of a log; of a process that crashed, the stacks and not its list of modules."""
    text = path.read_text(errors="replace").partition("Extension modules:")[0]
    return text[-3000:]


def log_of(file: str, lane: str) -> Log:
    """Where a file's results of a lane are."""
    return Log(RESULTS / lane / f"{file.replace('/', '.')}.jsonl")


def run_lanes(folder: Path, file: str, count: int, seed: int) -> None:
    """One file in all lanes."""
    for lane in LANES:
        run_file(folder, file, lane, count, seed)
    counts = judge(file, {lane: log_of(file, lane) for lane in LANES})
    print(counts.line(), flush=True)


def main() -> int:
    """Run, write docs/upstream.md, and say what is not as listed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tests", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--files", nargs="*", default=list(FILES))
    parser.add_argument("--fresh", action="store_true")
    given = parser.parse_args()
    if given.fresh:
        shutil.rmtree(RESULTS, ignore_errors=True)
    with ThreadPoolExecutor(given.jobs) as pool:
        done = [
            pool.submit(run_lanes, given.folder.resolve(), file, given.tests, given.seed)
            for file in given.files
        ]
        for one in done:
            one.result()
    judged = [judge(file, {lane: log_of(file, lane) for lane in LANES}) for file in given.files]
    write(judged, given.tests, given.seed)
    wrong = [line for one in judged for line in one.wrong()]
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
