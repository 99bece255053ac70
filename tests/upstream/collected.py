"""Runs tests that pytest collects in a folder, all of them with a default device."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tests.upstream.record import EXPECTED, FAILED, LONGEST, PASSED, SKIPPED, Log
from tests.upstream.suite import ROOT, Choose

STARTED = "setUp of "
"""How the name begins of a file that cannot be imported."""


class Recorder:
    """A plug-in of pytest's that runs what is chosen, and notes each test's begin and end."""

    def __init__(self, log: Log, choose: Choose) -> None:
        self._log, self._choose = log, choose
        self._outcome, self._why = PASSED, ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave what is chosen."""
        chosen = set(self._choose({one.nodeid for one in items}))
        items[:] = [one for one in items if one.nodeid in chosen]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported: its tests are not run."""
        if report.failed:
            self._log.ended(STARTED + report.nodeid, FAILED, report.longreprtext[-LONGEST:])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._outcome, self._why = PASSED, ""
        self._log.began(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Its set-up, itself or what comes after it has ended; the worst of the three counts."""
        if report.failed and self._outcome != FAILED:
            self._outcome, self._why = FAILED, report.longreprtext[-LONGEST:]
        elif report.skipped and self._outcome == PASSED:
            expected = hasattr(report, "wasxfail")
            self._outcome = EXPECTED if expected else SKIPPED
            self._why = "" if expected else str(report.longrepr)[-LONGEST:]

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """It has ended."""
        self._log.ended(nodeid, self._outcome, self._why)


def run_collected(
    folder: Path, arguments: Sequence[str], device: str, log: Log, choose: Choose
) -> None:
    """Run tests of a source distribution that is at ``folder``, as from there."""
    os.chdir(folder)
    for name in [one for one in sys.modules if one.partition(".")[0] == "tests"]:
        del sys.modules[name]  # of others' tests there may be a package of this name
    sys.path[:] = [str(folder), *(one for one in sys.path if one != str(ROOT))]
    torch.set_default_device(device)
    ours = ("--rootdir", ".", "--continue-on-collection-errors", "-q", "-o", "addopts=")
    without = ("cacheprovider", "xdist", "benchmark", "cov", "randomly")
    absent = [word for name in without for word in ("-p", f"no:{name}")]
    pytest.main([*ours, *absent, *arguments], plugins=[Recorder(log, choose)])
