"""Runs test cases of unittest that a suite has made, on one device."""

from __future__ import annotations

import traceback
import unittest
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import torch

from tests.upstream.record import EXPECTED, FAILED, LONGEST, PASSED, SKIPPED, Log
from tests.upstream.suite import Choose, Run

Tests = Mapping[str, unittest.TestCase]
Load = Callable[[Path, str, str], Tests]
Error = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


class Recorder(unittest.TestResult):
    """Notes each test's begin and end; one that is told no device runs with a default one."""

    def __init__(
        self,
        log: Log,
        names: dict[int, str],
        device: str,
        default_device: Callable[[unittest.TestCase], bool],
    ) -> None:
        super().__init__()
        self._log, self._names = log, names
        self._device = device  # the CPU, too: PyTorch fails by itself where there is a default
        self._default_device = default_device
        self._outcome, self._why = PASSED, ""

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 (unittest's names)
        super().startTest(test)
        self._outcome, self._why = PASSED, ""
        self._log.began(self._names[id(test)])
        torch.set_default_device(self._device if self._default_device(test) else None)

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


def cases(load: Load, default_device: Callable[[unittest.TestCase], bool]) -> Run:
    """Run what ``load(folder, file, device)`` gives: a file's tests by their names on the CPU.

    ``default_device`` says of a test that it is told no device and runs with a default one.
    """

    def run(folder: Path, file: str, device: str, log: Log, choose: Choose) -> None:
        tests = load(folder, file, device)
        left: Final = {name: tests[name] for name in choose(tests)}
        names = {id(test): name for name, test in left.items()}
        recorder = Recorder(log, names, device, default_device)
        unittest.TestSuite(left.values()).run(recorder)

    return run
