"""Checks of data: what PyTorch's CPU kernels look at and raise for, and XLA's programs do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, final

import torch

from fuse.backends.written_once import WrittenOnce, given_sizes

_LIBRARY = torch.library.Library("fuse", "FRAGMENT")
_LIBRARY.define("check(Tensor state, Tensor values, Tensor? indexed=None) -> Tensor")


class State(NamedTuple):
    """What a trace's checks have found: three 64-bit integers, all 0 before the first.

    Attributes:
        checks: how many there were.
        first: the number, from 1, of the first that failed, 0 for none.
        value: the index that was out of range, where it is one.
    """

    checks: int
    first: int
    value: int


class DataCheck(WrittenOnce):
    """One more check: of the state before it and of what it looks at it makes the next state."""

    def found(self, xp: ModuleType, state: Any, failed: Any, value: Any) -> Any:
        """The state after a check that has ``failed`` or not."""
        checks, first, before = state[0] + 1, state[1], state[2]
        is_first = failed & (first == 0)
        return xp.stack(
            [checks, xp.where(is_first, checks, first), xp.where(is_first, value, before)]
        )


@final
@dataclass(frozen=True)
class IndexCheck(DataCheck):
    """Whether an index is in range.

    Attributes:
        sizes: their product is the number of places; ``None`` for those that are given.
        dims: the dimensions that these are the sizes of.
        wraps: whether an index below 0 counts from the end.
        ignored: an index that names no place, ``None`` if all do.
    """

    sizes: tuple[int | None, ...]
    dims: tuple[int, ...]
    wraps: bool = False
    ignored: int | None = None

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the state, the index, and sizes that are given; what else there is it ignores."""
        state, index, *given = arrays
        size: Any = 1
        for one in given_sizes(self.sizes, given):
            size = size * one
        size = xp.maximum(size, 1)  # padding names place 0, also where there is none
        if self.ignored is not None:
            index = xp.where(index == self.ignored, 0, index)
        most, least = index.max().astype("int64"), index.min().astype("int64")
        failed = (most >= size) | (least < (-size if self.wraps else 0))
        return self.found(xp, state, failed, xp.where(most >= size, most, least))


@final
@dataclass(frozen=True)
class ProbabilityCheck(DataCheck):
    """Whether all numbers are from 0 to 1."""

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the state and the numbers."""
        state, values = arrays
        return self.found(xp, state, ~((values >= 0) & (values <= 1)).all(), 0)


@final
@dataclass(frozen=True)
class WeightsCheck(DataCheck):
    """Whether all numbers are finite and none is negative, and not all of a row are 0."""

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the state and the numbers, whose last dimension is a row."""
        state, values = arrays
        valid = ((values >= 0) & (values < xp.inf)).all() & (values > 0).any(-1).all()
        return self.found(xp, state, ~valid, 0)
