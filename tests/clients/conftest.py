"""The table that `make clients` writes, and a user's settings instead of the other tests'."""

from __future__ import annotations

import importlib.metadata
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import fuse

BEGIN, END = "<!-- made by make clients -->\n", "<!-- end -->\n"
HEAD = (
    "| library | version | what was run | result | host fallbacks | first step | steady step |\n"
    "| --- | --- | --- | --- | --- | --- | --- |\n"
)


@pytest.fixture(scope="session", autouse=True)
def users_settings(request: pytest.FixtureRequest) -> Iterator[None]:
    """Here programs run as their users' do; tests/conftest.py sets these for small programs.

    Not where the file is loaded: pytest does that also when it only looks for tests here.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUSE_TIER", request.config.getoption("--tier"))
        yield


@dataclass
class Case:
    """One row of the table: what a test says of itself as it goes."""

    library: str
    what: str
    fallbacks: str = "-"
    first: str = "-"
    steady: str = "-"

    def compare(self, run: Callable[[str], list[Any]]) -> tuple[list[Any], list[Any]]:
        """The results of ``run(device)`` on the device and on the CPU, one a step.

        ``run`` returns pairs of seconds and result. First and steady step (the median of the
        second half) are kept as multiples of CPU eager's.
        """
        fuse.reset_stats()
        device = run("tpu")
        self.fallbacks = str(sum(fuse.stats()["host_fallbacks"].values()))
        cpu = run("cpu")
        half = len(cpu) // 2
        self.first = f"{device[0][0] / cpu[0][0]:.1f}"
        steady = [statistics.median(seconds for seconds, _ in one[half:]) for one in (device, cpu)]
        self.steady = f"{steady[0] / steady[1]:.2f}"
        return [result for _, result in device], [result for _, result in cpu]


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """How long a step took, in seconds, and its result as a number of the host."""
    start = time.perf_counter()
    result = call()
    result = result.item() if isinstance(result, torch.Tensor) else result
    return time.perf_counter() - start, result


KEY = pytest.StashKey[Case]()
ROWS = pytest.StashKey[list[tuple[Case, str]]]()


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    """The test's row; its library is the module's ``LIBRARY``, its text the docstring."""
    text = str(request.function.__doc__).splitlines()[0].removesuffix(".")
    parameters = getattr(request.node, "callspec", None)
    if parameters is not None:
        text += f": {parameters.id}"
    yield request.node.stash.setdefault(KEY, Case(request.module.LIBRARY, text))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    report = yield
    row = item.stash.get(KEY, None)
    if row is not None and report.when == "call":
        item.session.stash.setdefault(ROWS, []).append(
            (row, "agrees" if report.passed else "fails")
        )
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--table", type=Path, help="the page whose table is to be made anew")
    parser.addoption("--tier", default="auto", help="FUSE_TIER of all cases")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the table; rows of libraries that were not run stay."""
    page = session.config.getoption("--table")
    if page is None:
        return
    lines = [
        f"| {row.library} | {importlib.metadata.version(row.library)} | {row.what} | {result} "
        f"| {row.fallbacks} | {row.first} | {row.steady} |\n"
        for row, result in session.stash.get(ROWS, [])
    ]
    before, _, rest = page.read_text().partition(BEGIN)
    made, _, after = rest.partition(END)
    run = {line.split(" | ")[0] for line in lines}
    lines += [
        line for line in made.splitlines(keepends=True)[2:] if line.split(" | ")[0] not in run
    ]
    page.write_text(before + BEGIN + HEAD + "".join(sorted(lines)) + END + after)
