"""The bench's everyday loops: the first losses are the CPU's, uncompiled and compiled."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import pytest

import fuse
from bench.everyday.common import Loop
from bench.everyday.loops import LOOPS
from bench.everyday.measure import Options, measure
from tests.device.helpers import run
from tests.lanes import only_in
from tests.marks import slow_but

STEPS = 8
DEFAULTS = {"FUSE_TIER": "auto"}
ALL = """
import json, warnings
from bench.everyday.loops import LOOPS
from tests.programs.test_everyday import losses
warnings.simplefilter("ignore")
print(json.dumps({name: losses(loop, "tpu") for name, loop in LOOPS.items()}))
"""
COMPARED = [name for name, loop in LOOPS.items() if not loop.draws]
QUICK = ["sgd mlp", "recommender"]


def losses(loop: Loop, device: str) -> list[float]:
    """What the first steps return, read at the end: the loop's own reads are the only others."""
    step = loop.build(device)
    return [float(loss) for loss in [step() for _ in range(STEPS)]]


def assert_the_cpus(found: list[float], name: str) -> None:
    tolerance = 1e-2 if name == "autocast" else 1e-3  # bfloat16 has three digits
    assert found == pytest.approx(losses(LOOPS[name], "cpu"), rel=tolerance, abs=1e-4)


@pytest.fixture(scope="module")
def found() -> dict[str, list[float]]:
    """Every loop's first losses in one process with the default settings."""
    result: dict[str, list[float]] = json.loads(run(ALL, **DEFAULTS).splitlines()[-1])
    return result


@pytest.fixture
def fused() -> Iterator[None]:
    before = fuse.get_mode()
    fuse.set_mode("fused")
    yield
    fuse.set_mode(before)


@only_in("default", reason="a process with the default settings")
def test_there_are_thirty(found: dict[str, list[float]]) -> None:
    assert len(LOOPS) == 30 and set(found) == set(LOOPS)
    assert all(math.isfinite(loss) for each in found.values() for loss in each)


@only_in("default", reason="a process with the default settings")
@pytest.mark.parametrize("name", COMPARED)
def test_the_first_steps_by_default(name: str, found: dict[str, list[float]]) -> None:
    assert_the_cpus(found[name], name)


@only_in("compiled", "accelerator", reason="the tier is in its name")
@pytest.mark.parametrize("name", slow_but(QUICK, COMPARED))
@pytest.mark.usefixtures("fused")
def test_the_first_steps_compiled(name: str) -> None:
    assert_the_cpus(losses(LOOPS[name], "tpu"), name)


@pytest.mark.slow
def test_a_loop_is_measured() -> None:
    short = Options(steps=4, rounds=1, turn_seconds=0.01, warm_seconds=0.0)
    result = measure("sgd mlp", short)
    assert set(result) == {"first", "steady", "warm"}
    assert all(one["cpu"] > 0 and one["tpu"] > 0 for one in result.values())
    stats = result["steady"]["stats"]
    assert stats["recorded"] + stats["uncompiled"] >= 10 * stats["steps"]
