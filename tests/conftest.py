"""Shared by every test: its lane, the seed, and the three modes as a parameter."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import fuse
from fuse.backends.xla.cpu import workers
from fuse.device import lazy
from fuse.engine.support_cache import SupportCache
from fuse.trace.node import Node
from tests import lanes
from tests.cache.s3 import NEEDS, s3_server

_cache = tempfile.TemporaryDirectory(prefix="fuse-tests-")
# What earlier runs compiled is no part of a test; child processes share what this one compiles.
os.environ["FUSE_CACHE_DIR"] = _cache.name

MODES = ("debug", "strict", "fused")
SKIPS = pytest.StashKey[list[tuple[str, str]]]()
REFUSED: list[str] = []
"""Operators that a compiler refused, or whose rule raised while it was traced: they run on the
host, with the right values, so that nothing else would show it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=lanes.CHOICES, help="default: FUSE_TEST_LANE, or home")
    parser.addoption(
        "--sample", type=int, metavar="N", help="one in N of the tests that have lanes"
    )
    parser.addoption(
        "--share", metavar="I/N", help="the I-th of N shares of the tests, by their names"
    )
    parser.addoption("--lane-skips", action="store_true", help="list what the lane leaves out")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.lane is None:
        config.option.lane = os.environ.get("FUSE_TEST_LANE", "home")
    refuse = SupportCache.refuse

    def noted(self: SupportCache, node: Node, reason: str) -> None:
        REFUSED.append(f"{node.op}: {reason}")
        refuse(self, node, reason)

    SupportCache.refuse = noted  # type: ignore[method-assign]
    # A change of lane waits for what compiles, which beside tests on all cores took a minute.
    workers.NICE = 0  # type: ignore[misc]
    # Where files are loaded, before it is known which test is first.
    lanes.enter(config.option.lane if config.option.lane in lanes.LANES else "compiled")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not of the sample, and skip what is about other lanes."""
    chosen, one_in = config.option.lane, config.option.sample
    if one_in:
        _keep(config, items, lambda item: lanes.is_sampled(item, one_in))
    if config.option.share:
        number, shares = map(int, config.option.share.split("/"))
        _keep(config, items, lambda item: (lanes.by_name(item) - number) % shares == 0)
    for item in items:
        why = lanes.skipped(item, lanes.lane_of(item, chosen))
        if why is not None:
            item.add_marker(pytest.mark.skip(reason=why))
            config.stash.setdefault(SKIPS, []).append((item.nodeid, why))


def _keep(
    config: pytest.Config, items: list[pytest.Item], wanted: Callable[[pytest.Item], bool]
) -> None:
    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = filter(wanted, items)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """With ``--lane-skips``: a line for each file and reason."""
    if config.option.lane_skips:
        found = Counter((node.split("::")[0], why) for node, why in config.stash.get(SKIPS, []))
        for (path, why), count in sorted(found.items()):
            terminalreporter.write_line(f"{path}: {count} skipped, {why}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if lanes.has_settings(item):
        lanes.enter(lanes.lane_of(item, item.config.option.lane))


@pytest.fixture(autouse=True)
def seed() -> None:
    """Every test starts from the same random state, on the host and on the device."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """A test that leaves settings or the dispatcher changed fails, not one of those after it."""
    before = _settings()
    yield
    assert _settings() == before


@pytest.fixture(autouse=True)
def nothing_is_refused(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test fails where an operation ran on the host for its compiler, unless it is about that."""
    REFUSED.clear()
    yield
    if request.node.get_closest_marker("refused") is None:
        assert not REFUSED


@pytest.fixture(autouse=True)
def nothing_is_left_to_compile() -> Iterator[None]:
    """What a test leaves in the compiler's queue takes no core from those after it, and no time
    where they wait until all is compiled."""
    yield
    if lazy.is_initialised() and not lazy.engine().planning.compiler.is_idle():
        lazy.core().forget()


def _settings() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name.startswith("FUSE_")}
    backend = fuse.get_backend()
    own["mode"], own["backend"] = fuse.get_mode(), "xla" if ":" in backend else backend
    # A guard that outlives its call: transforms of torch.func no longer work then.
    own["dispatcher"] = str(torch._C._dispatch_tls_local_exclude_set())
    return own


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, Any]]:
    """Options of s3fs for an S3-compatible server, which runs as long as the tests do."""
    for name in NEEDS:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}: pip install 'moto[server]' s3fs")
    with s3_server() as options:
        yield options


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs once in each eager mode."""
    before = fuse.get_mode()
    fuse.set_mode(request.param)
    yield request.param
    fuse.set_mode(before)
