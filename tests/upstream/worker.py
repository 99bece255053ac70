"""One process: some tests of one of PyTorch's files, one after another, on one device.

    python -m tests.upstream.worker FOLDER FILE DEVICE COUNT SEED RESULTS [CPU_RESULTS]

It appends a line of JSON to RESULTS as a test begins and as it ends, so that whoever started it
knows which one the process ended or stayed in. What has ended is not run again, nor what
CPU_RESULTS does not say passed there.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import signal
import sys
import traceback
import unittest
import warnings
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import torch

from tests.upstream.files import is_run
from tests.upstream.names import is_generic, sample, tests_of
from tests.upstream.older import supply
from tests.upstream.record import EXPECTED, FAILED, PASSED, SKIPPED, Log, passed

Error = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]
LONGEST = 4000
"""Characters of a traceback that are kept."""


class Recorder(unittest.TestResult):
    """Notes each test's begin and end; one that is told no device runs with a default one."""

    def __init__(self, log: Log, names: dict[int, str], device: str) -> None:
        super().__init__()
        self._log, self._names = log, names
        self._device = None if device == "cpu" else device
        self._outcome, self._why = PASSED, ""

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 (unittest's names)
        super().startTest(test)
        self._outcome, self._why = PASSED, ""
        self._log.began(self._names[id(test)])
        torch.set_default_device(None if is_generic(test) else self._device)

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


def load(folder: Path, file: str) -> ModuleType:
    """The file as a module; those beside it, which it may import, can be found."""
    path = folder / f"{file}.py"
    sys.path[:0] = [str(folder), str(path.parent)]
    sys.argv[1:] = []  # the file's own arguments: PyTorch reads them
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its classes are pickled
    # Copied into another class, as PyTorch does, a method that asks for its class's base so asks
    # itself.
    text = path.read_text().replace("super(self.__class__, self)", "super()")
    exec(compile(text, str(path), "exec", dont_inherit=True), module.__dict__)
    return module


def main(
    folder: str, file: str, device: str, count: str, seed: str, results: str, on_cpu: str = ""
) -> None:
    """Run what is left of the sample."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    warnings.simplefilter("default")
    supply()
    module = load(Path(folder), file)
    tests = {n: one for n, one in tests_of(module, device).items() if is_run(file, n)}
    log = Log(Path(results))
    names = sample(tests, int(count), int(seed))
    if on_cpu:
        right = passed(Path(on_cpu))
        names = [name for name in names if name in right]
    ended = log.outcomes()
    left = {name: tests[name] for name in names if name not in ended}
    if device != "cpu":
        torch.tpu.init()  # which may build the core
    log.planned(len(tests))
    suite = unittest.TestSuite(left.values())
    suite.run(Recorder(log, {id(test): name for name, test in left.items()}, device))
    log.finished()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a failed test leaves threads that wait


if __name__ == "__main__":
    main(*sys.argv[1:])
