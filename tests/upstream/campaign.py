"""Runs a suite's tests on the CPU and on the device, and says where they differ.

    python -m tests.upstream.campaign SUITE FOLDER [--tests N] [--seed S] [--jobs J] [--files F ...]

FOLDER is the ``test`` folder of a checkout of PyTorch, or ``tests`` of transformers' source
distribution. Of each file N tests are drawn by the seed, all if 0. What has been run is in build
and is not run again; ``--fresh`` forgets it.
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

from tests.upstream.judge import Judged, judge
from tests.upstream.record import DIED, FAILED, HUNG, LARGE, Log
from tests.upstream.report import write
from tests.upstream.suite import LANES, NAMES, ROOT, Suite, device_of, suite

START_SECONDS: Final = 600.0
"""For PyTorch's largest files, which make some ten thousand tests as they are imported."""
SECONDS: Final = 1200.0
"""Of silence after which a test hangs: some compile hundreds of sizes."""
MEMORY: Final = 6 << 30
"""Bytes that a worker may keep resident; one that keeps more is ended."""


def run_file(of: Suite, folder: Path, file: str, lane: str, count: int, seed: int) -> None:
    """Run what is left of a file in one lane, in as many processes as its faults make necessary."""
    results = log_of(of, file, lane)
    results.path.parent.mkdir(parents=True, exist_ok=True)
    on_cpu = [] if lane == "cpu" else [str(log_of(of, file, "cpu").path)]
    arguments = [of.name, str(folder), file, device_of(lane), str(count), str(seed)]
    arguments += [str(results.path), *on_cpu]
    while not results.is_finished():
        before = len(results.begun())
        how = _process(of, file, arguments, lane, results)
        test = results.unfinished()
        if test is not None:
            results.ended(test, how, _tail(results.path.with_suffix(".log")))
        elif not results.is_finished() and len(results.begun()) == before:
            results.ended(file, FAILED, _tail(results.path.with_suffix(".log")))
            results.finished()


def _process(of: Suite, file: str, arguments: list[str], lane: str, results: Log) -> str:
    """One worker until it ends, says nothing for too long or keeps too much; how it ended."""
    settings = {
        **os.environ,
        **LANES[lane],
        **of.settings(file, device_of(lane)),
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
        return _watched(process, results.path)


def _watched(process: subprocess.Popen[bytes], path: Path) -> str:
    """How a worker ended, which writes to ``path`` as it goes on."""
    size, since, limit = 0, time.monotonic(), START_SECONDS
    while process.poll() is None:
        now = path.stat().st_size if path.exists() else 0
        if now != size:
            size, since, limit = now, time.monotonic(), SECONDS
        how = HUNG if time.monotonic() - since > limit else None
        how = LARGE if _resident(process.pid) > MEMORY else how
        if how is not None:
            process.send_signal(signal.SIGUSR1)  # every thread's stack, into the log
            time.sleep(1.0)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return how
        time.sleep(0.05)
    return DIED


def _resident(process: int) -> int:
    """Bytes of memory that a process keeps; 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _tail(path: Path) -> str:
    """The end of a log; of a process that crashed, the stacks and not its list of modules."""
    text = path.read_text(errors="replace").partition("Extension modules:")[0]
    return text[-3000:]


def log_of(of: Suite, file: str, lane: str) -> Log:
    """Where a file's results of a lane are."""
    return Log(of.results / lane / f"{file.replace('/', '.')}.jsonl")


def judged(of: Suite, file: str) -> Judged:
    """What has been run of a file, in those of its lanes that were begun."""
    logs = {lane: log_of(of, file, lane) for lane in of.lanes(file)}
    return judge(of, file, {lane: log for lane, log in logs.items() if log.path.exists()})


def run_lanes(of: Suite, folder: Path, file: str, given: argparse.Namespace) -> None:
    """One file in those of its lanes that are asked for."""
    for lane in of.lanes(file):
        if lane in given.lanes:
            run_file(of, folder, file, lane, given.tests, given.seed)
    print(judged(of, file).line(), flush=True)


def main() -> int:
    """Run, write the suite's page if all of it was asked for, and say what is not as listed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=NAMES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tests", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--files", nargs="*")
    parser.add_argument("--lanes", nargs="*", choices=tuple(LANES), default=list(LANES))
    parser.add_argument("--fresh", action="store_true")
    given = parser.parse_args()
    of, folder = suite(given.suite), given.folder.resolve()
    files = given.files or list(of.files)
    if given.fresh:
        shutil.rmtree(of.results, ignore_errors=True)
    with ThreadPoolExecutor(given.jobs) as pool:
        done = [pool.submit(run_lanes, of, folder, file, given) for file in files]
        for one in done:
            one.result()
    found = [judged(of, file) for file in files]
    if not given.files:  # else it would lose what others gave
        write(of, found, given.tests, given.seed)
    wrong = [line for one in found for line in one.wrong()]
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
