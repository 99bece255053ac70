"""Forks a pytest from a process that has imported PyTorch and JAX, once a line of its input.

It runs in a copy of the project (``tests.mutation.trees``). A line is a request in JSON:
``arguments`` of pytest, ``seconds`` that it may take, ``output``, a file for what it prints, and
``record``, a file for which lines of the project each test runs, or null. The answer is the exit
code, -9 for one that took too long.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import jax
import pytest
import torch

IMPORTED = (jax, torch)
POLL_SECONDS = 0.02


class Recorder:
    """A plugin that notes the lines which each test runs, and its seconds, while it passes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        sources = [str(root / name / "*") for name in ("fuse", "backends", "cache")]
        self.coverage = coverage.Coverage(data_file=None, include=sources, config_file=False)
        self.coverage.start()
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if not report.passed:  # a skipped test notices nothing either
            self.failed.add(report.nodeid)

    def save(self, file: Path) -> None:
        """Write ``{"seconds": {test: seconds}, "lines": {source: {line: [test, ...]}}}``."""
        self.coverage.stop()
        data = self.coverage.get_data()
        lines: dict[str, dict[int, list[str]]] = {}
        for source in data.measured_files():
            name = str(Path(source).resolve().relative_to(self.root.resolve()))
            lines[name] = data.contexts_by_lineno(source)
        passed = {test: took for test, took in self.seconds.items() if test not in self.failed}
        file.write_text(json.dumps({"seconds": passed, "lines": lines}))


def run(request: dict[str, Any]) -> int:
    """Fork, run pytest there, and wait for as long as it may take; the exit code."""
    folder = tempfile.mkdtemp(prefix="mutant-")
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        _print_to(request["output"])
        os._exit(_tested(request))  # nothing to say at the end of a device that may be broken
    try:
        return _ended(pid, time.monotonic() + request["seconds"])
    finally:
        with contextlib.suppress(ProcessLookupError):  # and the processes of its tests
            os.killpg(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _print_to(file: str) -> None:
    stream = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stream, 1)
    os.dup2(stream, 2)


def _tested(request: dict[str, Any]) -> int:
    recorder = Recorder(Path.cwd()) if request["record"] else None
    code = pytest.main(request["arguments"], [recorder] if recorder else [])
    if recorder:
        recorder.save(Path(request["record"]))
    sys.stdout.flush()
    return int(code)


def _ended(pid: int, end: float) -> int:
    """The exit code of a process, which is killed where it has not ended by then."""
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(POLL_SECONDS)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -signal.SIGKILL


def main() -> None:
    """Answer requests until the input ends."""
    for line in sys.stdin:
        print(run(json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
