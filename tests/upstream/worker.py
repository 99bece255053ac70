"""One process: some tests of one of a suite's files, one after another, on one device.

    python -m tests.upstream.worker SUITE FOLDER FILE DEVICE COUNT SEED RESULTS [CPU_RESULTS]

It appends a line of JSON to RESULTS as a test begins and as it ends, so that whoever started it
knows which one the process ended or stayed in. What has ended is not run again, nor what
CPU_RESULTS does not say passed there.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
import unittest
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from tests.upstream.record import EXPECTED, FAILED, PASSED, SKIPPED, Log, passed
from tests.upstream.sample import sample
from tests.upstream.suite import Suite, suite

Error = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]
LONGEST = 4000
"""Characters of a traceback that are kept."""


class Recorder(unittest.TestResult):
    """Notes each test's begin and end; one that is told no device runs with a default one."""

    def __init__(self, of: Suite, log: Log, names: dict[int, str], device: str) -> None:
        super().__init__()
        self._suite = of
        self._log, self._names = log, names
        self._device = None if device == "cpu" else device
        self._outcome, self._why = PASSED, ""

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 (unittest's names)
        super().startTest(test)
        self._outcome, self._why = PASSED, ""
        self._log.began(self._names[id(test)])
        torch.set_default_device(self._device if self._suite.default_device(test) else None)

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().stopTest(test)
        torch.set_default_device(None)
        self._log.ended(self._names[id(test)], self._outcome, self._why)

    def addFailure(self, test: Any, err: Error) -> None:  # noqa: N802
        self._failed(err)

    def addError(self, test: Any, err: Error) -> None:  # noqa: N802
        if isinstance(test, unittest.TestCase):
            self._failed(err)
            return
        # A class's or the module's own set-up: its tests are not run.
        self._log.ended(f"{test}", FAILED, _text(err))

    def addSubTest(self, test: Any, subtest: Any, err: Error | None) -> None:  # noqa: N802
        if err is not None:
            self._failed(err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self._outcome, self._why = SKIPPED, reason

    def addExpectedFailure(self, test: unittest.TestCase, err: Error) -> None:  # noqa: N802
        self._outcome, self._why = EXPECTED, ""

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self._outcome, self._why = FAILED, "unexpected success"

    def _failed(self, err: Error) -> None:
        self._outcome, self._why = FAILED, _text(err)


def _text(err: Error) -> str:
    """A traceback's end, which names the error."""
    return "".join(traceback.format_exception(err[1]))[-LONGEST:]


def main(
    name: str,
    folder: str,
    file: str,
    device: str,
    count: str,
    seed: str,
    results: str,
    on_cpu: str = "",
) -> None:
    """Run what is left of the sample."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    warnings.simplefilter("default")
    sys.argv[1:] = []  # a file's own arguments: PyTorch reads them
    of = suite(name)
    tests = of.load(Path(folder), file, device)
    log = Log(Path(results))
    names = sample(tests, int(count), int(seed))
    if on_cpu:
        right = passed(Path(on_cpu), (SKIPPED,) if of.accelerators else ())
        names = [one for one in names if one in right]
    ended = log.outcomes()
    left = {one: tests[one] for one in names if one not in ended}
    if device != "cpu":
        torch.tpu.init()  # which may build the core
    log.planned(len(tests))
    recorder = Recorder(of, log, {id(test): one for one, test in left.items()}, device)
    unittest.TestSuite(left.values()).run(recorder)
    log.finished()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a failed test leaves threads that wait


if __name__ == "__main__":
    main(*sys.argv[1:])
