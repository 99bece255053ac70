"""``arange`` whose numbers move: of one size it is one program, on both backends."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st

import fuse
from tests.lanes import only_in
from tests.programs.harness import CPU, DEVICE

pytestmark = only_in("compiled", "default", reason="names its backends")

Range = tuple[float, float, float, torch.dtype | None]


@st.composite
def ranges(draw: st.DrawFn) -> list[Range]:
    """Ranges of a few elements, of integers and floats, down and up, of most dtypes."""
    dtype = draw(st.sampled_from((None, torch.int32, torch.uint8, torch.float32, torch.bfloat16)))
    found: list[Range] = []
    for _ in range(10):
        start, size = draw(st.integers(0, 40)), draw(st.integers(1, 3))
        step = draw(st.sampled_from((1, 1, 2, 3, -1, 0.5)))
        past = draw(st.sampled_from((0, 0, 0.25)))
        found.append((start, start + size * step - (past if step > 0 else -past), step, dtype))
    return found


@pytest.mark.usefixtures("each_backend")
def test_every_range_is_the_cpus() -> None:
    @settings(max_examples=30, deadline=None, derandomize=True)
    @given(ranges())
    def check(moving: list[Range]) -> None:
        for start, end, step, dtype in moving:
            found, expected = (
                torch.arange(start, end, step, dtype=dtype, device=device)
                for device in (DEVICE, CPU)
            )
            torch.testing.assert_close((found * 2).cpu(), expected * 2, rtol=0, atol=0)

    check()


@only_in("compiled", reason="counts compiles")
def test_a_position_that_moves_compiles_once() -> None:
    table = torch.arange(64.0).to(DEVICE)
    before = fuse.stats()["compiles"]
    for place in range(40):
        position = torch.arange(place, place + 1, device=DEVICE)
        assert table[position].item() == place
    assert fuse.stats()["compiles"] - before <= 2
