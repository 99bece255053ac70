"""Positions among values, and places in an array with room: programs of ``fuse.families``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, final

from fuse.backends.padding import places_of, row_major
from fuse.backends.written_once import WrittenOnce, given_sizes


@final
@dataclass(frozen=True)
class Located(WrittenOnce):
    """An index into the values of an axis as one into its array; from the end where it is below 0.

    ``sizes`` are those of the axis's parts, ``None`` for those that are given.
    """

    rooms: tuple[int, ...]
    sizes: tuple[int | None, ...]

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the index, and the sizes that are given."""
        sizes = given_sizes(self.sizes, arrays[1:])
        index = arrays[0].astype("int64")
        index = xp.where(index < 0, index + math.prod(sizes), index)
        return places_of(xp, index, sizes, self.rooms).astype(arrays[0].dtype)


@final
@dataclass(frozen=True)
class Ranked(WrittenOnce):
    """The inverse of ``Located``: places in the array of an axis as positions among its values."""

    rooms: tuple[int, ...]
    sizes: tuple[int | None, ...]

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the places, and the sizes that are given."""
        left, rank = arrays[0], 0 * arrays[0]
        sizes = given_sizes(self.sizes, arrays[1:])
        for true, step in zip(row_major(sizes), row_major(self.rooms), strict=True):
            rank = rank + left // step * true
            left = left % step
        return rank.astype(arrays[0].dtype)


@final
@dataclass(frozen=True)
class Flipped(WrittenOnce):
    """The values of an array in reverse along dimensions, and padding behind them.

    ``factors`` are what given sizes are multiplied by, 0 for a dimension without.
    """

    dims: tuple[int, ...]
    factors: tuple[int, ...]

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the array, and the sizes that are given."""
        array, given = xp.flip(arrays[0], self.dims), iter(arrays[1:])
        for dim, factor in zip(self.dims, self.factors, strict=True):
            if factor:
                array = xp.roll(array, next(given).astype("int32") * factor, dim)
        return array


@final
@dataclass(frozen=True)
class Rolled(WrittenOnce):
    """The values of an array moved on along dimensions, those at the end to the beginning.

    ``sizes`` are those of the values along them, ``None`` for those that are given.
    """

    dims: tuple[int, ...]
    sizes: tuple[int | None, ...]
    shifts: tuple[int, ...]

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the array, and the sizes that are given."""
        array, sizes = arrays[0], given_sizes(self.sizes, arrays[1:])
        for dim, size, shift in zip(self.dims, sizes, self.shifts, strict=True):
            place = xp.arange(array.shape[dim], dtype="int32") - shift
            array = xp.take(array, place % xp.maximum(size, 1), dim)
        return array


@final
@dataclass(frozen=True)
class Bordered(WrittenOnce):
    """Values of a dimension from the one numbered ``start`` on, and numbers around them.

    There are ``room`` elements; ``sizes`` are those of the dimension's parts, ``None`` for those
    that are given.
    """

    dim: int
    sizes: tuple[int | None, ...]
    start: int
    room: int
    number: float

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the array, and the sizes that are given."""
        array = arrays[0]
        size = math.prod(given_sizes(self.sizes, arrays[1:]))
        place = xp.arange(self.room, dtype="int32") + self.start
        shape = [-1 if dim == self.dim else 1 for dim in range(array.ndim)]
        inside = ((place >= 0) & (place < size)).reshape(shape)
        found = xp.take(array, xp.clip(place, 0, array.shape[self.dim] - 1), self.dim)
        return xp.where(inside, found, xp.asarray(self.number, dtype=array.dtype))


@final
@dataclass(frozen=True)
class Capped(WrittenOnce):
    """Numbers that are at most a size: its parts' are ``sizes``, ``None`` for those given."""

    sizes: tuple[int | None, ...]

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the array, and the sizes that are given."""
        most = math.prod(given_sizes(self.sizes, arrays[1:]))
        return xp.minimum(arrays[0], most).astype(arrays[0].dtype)
