"""Which lane a test runs in, and that entering one is what its settings say."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

import fuse
from fuse.device import lazy
from tests import lanes
from tests.device.helpers import run


def item(place: str, mark: pytest.MarkDecorator | None = None) -> Any:
    return SimpleNamespace(
        path=lanes.HERE / place,
        nodeid=f"tests/{place}::test_it",
        get_closest_marker=lambda name: None if mark is None else mark.mark,
    )


COUNTS = lanes.only_in("compiled", "accelerator", reason="counts compiles")


@pytest.mark.parametrize(
    ("one", "home", "other"),
    [
        (item("device/test_a.py"), "default", "compiled"),
        (item("device/test_a.py", COUNTS), "compiled", "default"),
        (item("kernels/test_pages.py"), "default", "compiled"),
        (item("engine/test_a.py"), "compiled", "compiled"),
    ],
)
def test_where_a_test_is_at_home(one: Any, home: str, other: str) -> None:
    assert lanes.lane_of(one, "home") == home and lanes.lane_of(one, "other") == other
    assert lanes.lane_of(one, "accelerator") == "accelerator"


def test_what_is_about_an_accelerator_runs_where_all_is_on_one() -> None:
    """Beside others it could not: from a started platform there is no way to another."""
    one = item("device/test_a.py", lanes.only_in("accelerator", reason="sizes"))
    assert {lanes.lane_of(one, chosen) for chosen in ("home", "other", "compiled")} == {"compiled"}
    assert lanes.skipped(one, "compiled") == "only in accelerator: sizes"
    assert lanes.lane_of(one, "accelerator") == "accelerator" and lanes.is_sampled(one, 10**9)


def test_what_a_lane_leaves_out_has_a_reason() -> None:
    one = item("device/test_a.py", COUNTS)
    assert lanes.skipped(one, "default") == "only in compiled and accelerator: counts compiles"
    assert lanes.skipped(one, "accelerator") is None
    assert lanes.skipped(item("device/test_a.py"), "default") is None
    elsewhere = lanes.not_on_accelerators("host memory")
    assert lanes.skipped(item("device/test_a.py", elsewhere), "accelerator") is not None
    with pytest.raises(AssertionError):
        lanes.only_in("compiled", reason="")
    with pytest.raises(AssertionError):
        lanes.only_in("elsewhere", reason="there is no such lane")


def test_a_sample_is_the_same_every_time_and_of_those_with_lanes() -> None:
    found = [lanes.is_sampled(item(f"device/test_{at}.py"), 8) for at in range(800)]
    assert 60 <= sum(found) <= 140
    assert found == [lanes.is_sampled(item(f"device/test_{at}.py"), 8) for at in range(800)]
    assert not any(lanes.is_sampled(item(f"engine/test_{at}.py"), 8) for at in range(80))


def test_entering_a_lane_sets_what_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    if "FUSE_BACKEND" in os.environ:
        pytest.skip("the device has started on another platform")
    lazy.initialise()
    before = lanes.LANES["compiled"] if "FUSE_TIER" in os.environ else lanes.LANES["default"]
    for name, tier in (("default", "auto"), ("compiled", "compiled"), ("default", "auto")):
        lanes.enter(name)
        assert lazy.engine().tier == tier
        assert lazy.engine().planning.compiler.background == (tier == "auto")
    assert fuse.get_backend() == "xla"
    lanes.enter("compiled" if before else "default")


LANE = """
import fuse, torch
from fuse.device import lazy
torch.tpu.init()
print(lazy.engine().tier, torch.tpu.get_device_name())
"""


def test_processes_inherit_the_accelerator() -> None:
    printed = run(LANE, **lanes.LANES["accelerator"])
    assert printed.split() == ["compiled", "simulated", "accelerator"]
