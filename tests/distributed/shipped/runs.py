"""Runs PyTorch's own tests on some ranks, and starts anew after each that does not pass.

    python -m tests.distributed.shipped.runs RANKS [PATTERN ...]

prints a line a test, and the table of docs/distributed.md.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fuse.ports import free_port

ROOT = Path(__file__).parents[3]
SILENCE = 120.0
"""Seconds without a result after which a test hangs; the first one has the start before it."""


FRESH = frozenset({"test_3_level_hierarchical_model_averager"})
"""Tests that count what their process has done: groups made, for one. Each begins new ranks."""

ALONE = 25.0
"""Seconds that the others have once a rank has ended."""


@dataclass(frozen=True)
class Outcome:
    """A test's result on all ranks: the worst of them, and what the device did on the busiest."""

    test: str
    result: str
    why: str = ""
    operations: int = 0
    collectives: int = 0


def names() -> list[str]:
    """Every test of the file, in its order; asked in a process of its own: loading has effects."""
    program = (
        "from tests.distributed.shipped.source import load\n"
        "base = load().DistributedTest._DistTestBase\n"
        "print(*[name for name in vars(base) if name.startswith('test_')])"
    )
    settings = {**os.environ, "BACKEND": "tpu_dist", "WORLD_SIZE": "4"}
    line = [sys.executable, "-c", program]
    done = subprocess.run(
        line, capture_output=True, text=True, env=settings, cwd=ROOT, timeout=100, check=True
    )
    return done.stdout.split()


def run(tests: list[str], size: int) -> Iterator[Outcome]:
    """Every test's outcome on ``size`` ranks."""
    while tests:
        end = next((at for at in range(1, len(tests)) if tests[at] in FRESH), len(tests))
        found = _until_one_fails(tests[:end], size)
        yield from found.values()
        tests = tests[len(found) :]


def _until_one_fails(tests: list[str], size: int) -> dict[str, Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        for part in ("barrier", "test_dir"):
            Path(folder, part).mkdir()
        Path(folder, "names").write_text("\n".join(tests))
        outputs = [Path(folder, f"output-{rank}") for rank in range(size)]
        port = str(free_port())
        ranks = [_start(folder, rank, size, port, outputs[rank]) for rank in range(size)]
        _watch(ranks, outputs)
        texts = [output.read_text(errors="replace") for output in outputs]
    return _merged(texts, tests)


def _start(folder: str, rank: int, size: int, port: str, output: Path) -> subprocess.Popen[bytes]:
    settings = {
        **os.environ,
        "BACKEND": "tpu_dist",
        "WORLD_SIZE": str(size),
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TEMP_DIR": folder,
        "JAX_PLATFORMS": "cpu",
        "OMP_NUM_THREADS": "1",
    }
    with output.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.distributed.shipped.rank", f"{folder}/names"],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=settings,
            cwd=ROOT,
            start_new_session=True,
        )


def _watch(ranks: list[subprocess.Popen[bytes]], outputs: list[Path]) -> None:
    """Until all have ended, or nothing has come for too long; then they are killed."""
    size, since = 0, time.monotonic()
    gone = 0.0
    while any(process.poll() is None for process in ranks):
        now = sum(output.stat().st_size for output in outputs)
        if now != size:
            size, since = now, time.monotonic()
        if not gone and any(process.poll() is not None for process in ranks):
            gone = time.monotonic()
        if time.monotonic() - since > SILENCE or (gone and time.monotonic() - gone > ALONE):
            break
        time.sleep(0.1)
    for process in ranks:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _merged(texts: list[str], tests: list[str]) -> dict[str, Outcome]:
    lines = [
        {
            one["test"]: one
            for one in map(json.loads, re.findall(r"^@result (.*)$", text, flags=re.MULTILINE))
        }
        for text in texts
    ]
    found: dict[str, Outcome] = {}
    for test in tests:
        ranks = [of_rank[test] for of_rank in lines if test in of_rank]
        started = [text for text in texts if f"@start {test}\n" in text]
        if not started:
            break
        if len(ranks) < len(texts):
            failed = [one["why"] for one in ranks if one["result"] == "failed"]
            why = "\n".join(failed) or "\n".join(text[-1500:] for text in texts)
            found[test] = Outcome(test, "failed" if failed else "ended or stayed", why)
            break
        results = [one["result"] for one in ranks]
        worst = max(results, key=("passed", "skipped", "failed").index)
        why = "\n".join(one["why"] for one in ranks if one["result"] == worst)
        counts = [max(one.get(key, 0) for one in ranks) for key in ("operations", "collectives")]
        found[test] = Outcome(
            test, worst, why if worst == "failed" else why.split("\n")[0], *counts
        )
    if not found:  # the ranks did not come to the first test
        found[tests[0]] = Outcome(tests[0], "not started", "\n".join(t[-3000:] for t in texts))
    return found


def main(size: str, *patterns: str) -> None:
    """Run what matches any of the patterns, all without one, and print."""
    every = names()
    chosen = [
        one for one in every if any(fnmatch.fnmatch(one, pattern) for pattern in patterns or "*")
    ]
    for outcome in run(chosen, int(size)):
        print(
            f"{outcome.result:16}{outcome.test} ({outcome.operations} operations, "
            f"{outcome.collectives} collectives)",
            flush=True,
        )
        if outcome.result != "passed":
            print("    " + outcome.why.replace("\n", "\n    "), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
