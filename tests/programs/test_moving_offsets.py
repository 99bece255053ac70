"""Slices with steps whose offset moves: every place is the CPU's, on both backends."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tests.lanes import only_in
from tests.programs.harness import CPU, DEVICE

pytestmark = only_in("compiled", "default", reason="names its backends")


@dataclass(frozen=True)
class Moving:
    """``flat[offset : offset + span : step]`` of a value of ``shape``, at each of ``offsets``."""

    shape: tuple[int, ...]
    span: int
    step: int
    offsets: tuple[int, ...]

    def run(self, device: torch.device) -> list[torch.Tensor]:
        """What is read at each offset, and what is left after a write there."""
        value = torch.arange(float(torch.Size(self.shape).numel())).reshape(self.shape).to(device)
        found = []
        for offset in self.offsets:
            place = slice(offset, offset + self.span, self.step)
            found.append((value.view(-1)[place] * 2).cpu())
            value.view(-1)[place] += 0.5
            found.append((value + 0).cpu())
        return found


@st.composite
def movings(draw: st.DrawFn) -> Moving:
    shape = draw(st.tuples(st.integers(2, 5), st.integers(3, 7)))
    step, count = draw(st.integers(2, 3)), draw(st.integers(2, 3))
    span = (count - 1) * step + 1
    last = shape[0] * shape[1] - span
    offsets = draw(st.lists(st.integers(0, last), min_size=8, max_size=8))
    return Moving(shape, span, step, (0, *offsets, last))


@pytest.mark.usefixtures("each_backend")
def test_offsets_that_move_over_the_ends_of_rows() -> None:
    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(movings())
    def check(moving: Moving) -> None:
        pairs = zip(moving.run(DEVICE), moving.run(CPU), strict=True)
        for number, (found, expected) in enumerate(pairs):
            assert torch.equal(found, expected), (number, found, expected)

    check()
