"""What a program at a bucket's size does with padding: programs of ``fuse.families``.

They are written once for JAX and NumPy, whose functions of these names agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, final

import torch

from fuse.backends.written_once import WrittenOnce, given_sizes

OPERATOR = "fuse::padding"
"""Takes arrays, and after them sizes: numbers of the trace."""
_LIBRARY = torch.library.Library("fuse", "FRAGMENT")
_LIBRARY.define("padding(Tensor[] values, Tensor[] sizes) -> Tensor")


def _from_start(xp: ModuleType, index: Any, size: Any) -> Any:
    """An index, which counts from the end if it is below 0, as one from the start."""
    return xp.where(index < 0, index + size, index).astype("int32")


def _inside(xp: ModuleType, rooms: Sequence[int], at: int, first: Any, stop: Any) -> Any:
    positions = xp.arange(rooms[at], dtype="int32")
    inside = (positions >= first) & (positions < stop)
    return inside.reshape([-1 if dim == at else 1 for dim in range(len(rooms))])


@final
@dataclass(frozen=True)
class Fill(WrittenOnce):
    """An array with ``number`` in its padding: behind the size of each of the parts ``at``.

    ``rooms`` are of all its parts.
    """

    rooms: tuple[int, ...]
    at: tuple[int, ...]
    number: float

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the array and a size for each of ``at``."""
        array, *sizes = arrays
        value = array.reshape(self.rooms)
        number = xp.asarray(self.number, dtype=array.dtype)
        for at, size in zip(self.at, sizes, strict=True):
            inside = _inside(xp, self.rooms, at, 0, size.astype("int32"))
            value = xp.where(inside, value, number)
        return value.reshape(array.shape)


@final
@dataclass(frozen=True)
class Moved(WrittenOnce):
    """Of each part ``made`` elements from ``starts`` on; zeros where there are none."""

    rooms: tuple[int, ...]
    starts: tuple[int, ...]
    made: tuple[int, ...]
    shape: tuple[int, ...]

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the array."""
        value = arrays[0].reshape(self.rooms)
        stops = [start + made for start, made in zip(self.starts, self.made, strict=True)]
        taken = tuple(
            slice(max(start, 0), max(stop, 0))
            for start, stop in zip(self.starts, stops, strict=True)
        )
        borders = [
            (min(max(-start, 0), made), min(max(stop - room, 0), made))
            for start, stop, made, room in zip(
                self.starts, stops, self.made, self.rooms, strict=True
            )
        ]
        return xp.pad(value[taken], borders).reshape(self.shape)


@final
@dataclass(frozen=True)
class Joined(WrittenOnce):
    """Arrays one behind the other along a dimension, each right behind the values before it.

    ``sizes`` are of the values along it, ``None`` for those that are given.
    """

    dim: int
    rooms: tuple[int, ...]
    sizes: tuple[int | None, ...]

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the arrays, and the sizes that are given."""
        count = len(self.sizes)
        values, sizes = arrays[:count], given_sizes(self.sizes, arrays[count:])
        longest = max(sum(one.shape[self.dim] for one in values), self.rooms[self.dim])
        shape = [longest if at == self.dim else size for at, size in enumerate(self.rooms)]
        made = xp.zeros(shape, values[0].dtype)
        first = xp.zeros((), "int32")
        for value, size in zip(values, sizes, strict=True):
            behind = longest - value.shape[self.dim]
            wide = [(0, behind if at == self.dim else 0) for at in range(len(shape))]
            shifted = xp.roll(xp.pad(value, wide), first, self.dim)
            inside = _inside(xp, shape, self.dim, first, first + size)
            made = xp.where(inside, shifted, made)
            first = first + size
        taken = tuple(slice(0, size) for size in self.rooms)
        return made[taken]


@final
@dataclass(frozen=True)
class Placed(WrittenOnce):
    """Zeros of these ``rooms``, and the array at one place, from the end if it is below 0.

    ``index`` is ``None`` where it is given.
    """

    dim: int
    rooms: tuple[int, ...]
    index: int | None

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the array, what of the index is given, and the size of the dimension."""
        array, *given, size = arrays
        (first,) = given_sizes((self.index,), given)
        first = _from_start(xp, first, size.astype("int32"))
        inside = _inside(xp, self.rooms, self.dim, first, first + 1)
        return xp.where(inside, xp.expand_dims(array, self.dim), xp.zeros((), array.dtype))


@final
@dataclass(frozen=True)
class Shifted(WrittenOnce):
    """Zeros of these ``rooms``, and the array from a place on along ``dim``, which is given and
    counts from the end if it is below 0.

    ``size`` is the dimension's, ``None`` where it is given.
    """

    dim: int
    rooms: tuple[int, ...]
    size: int | None

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the array, zero where it is padding, the place, and what of the size is given."""
        array, start, *given = arrays
        (size,) = given_sizes((self.size,), given)
        first = _from_start(xp, start, size)
        longest = array.shape[self.dim]
        from_first = xp.arange(self.rooms[self.dim], dtype="int32") - first
        taken = xp.take(array, xp.clip(from_first, 0, longest - 1), axis=self.dim)
        inside = _inside(xp, self.rooms, self.dim, first, first + longest)
        return xp.where(inside, taken, xp.zeros((), array.dtype))


@final
@dataclass(frozen=True)
class Border(WrittenOnce):
    """Zeros, and negative infinity from a size on."""

    room: int
    dtype: str

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the size."""
        inside = xp.arange(self.room, dtype="int32") < arrays[0].astype("int32")
        return xp.where(inside, 0.0, -xp.inf).astype(self.dtype)


def row_major(sizes: Sequence[Any]) -> list[Any]:
    """Row-major strides of parts of these sizes, which may be numbers of the program."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * size
    return strides[::-1]


def places_of(xp: ModuleType, index: Any, sizes: Sequence[Any], rooms: Sequence[int]) -> Any:
    """Positions among values, of parts of these sizes, as places in their array."""
    place = 0 * index
    pairs = list(zip(sizes, row_major(rooms), strict=True))
    for size, step in reversed(pairs[1:]):
        place = place + index % xp.maximum(size, 1) * step
        index = index // xp.maximum(size, 1)
    return place + xp.clip(index, 0, rooms[0] - 1) * pairs[0][1] if pairs else place


@final
@dataclass(frozen=True)
class Compact(WrittenOnce):
    """The values of an array one behind the other, and anything behind them.

    ``sizes`` are those of its parts, ``None`` for those that are given.
    """

    rooms: tuple[int, ...]
    sizes: tuple[int | None, ...]

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the array, and the sizes that are given."""
        sizes = given_sizes(self.sizes, arrays[1:])
        flat = arrays[0].reshape(-1)
        return flat[places_of(xp, xp.arange(flat.size, dtype="int32"), sizes, self.rooms)]


@final
@dataclass(frozen=True)
class Spread(WrittenOnce):
    """The inverse of ``Compact``: an array of ``shape`` with room of values that have none."""

    rooms: tuple[int, ...]
    sizes: tuple[int | None, ...]
    shape: tuple[int, ...]

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the flat array, and the sizes that are given."""
        sizes = given_sizes(self.sizes, arrays[1:])
        place = xp.zeros(self.rooms, "int32")
        for at, step in enumerate(row_major(sizes)):
            shape = [-1 if dim == at else 1 for dim in range(len(self.rooms))]
            place = place + xp.arange(self.rooms[at], dtype="int32").reshape(shape) * step
        place = xp.minimum(place, arrays[0].size - 1)
        return arrays[0][place].reshape(self.shape)


@final
@dataclass(frozen=True)
class Scaled(WrittenOnce):
    """A mean over parts of these rooms as one over as many elements as there are."""

    rooms: tuple[int, ...]

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the array, and the size of each part."""
        array, *sizes = arrays
        wide = str(array.dtype) in ("float64", "complex128")
        size = xp.ones((), "float64" if wide else "float32")
        for one in sizes:
            size = size * one.astype(size.dtype)
        total = array * xp.asarray(math.prod(self.rooms), size.dtype)  # powers of two: as it was
        # Not by a product with the reciprocal: see ``divided`` of XLA's rules.
        return (total / xp.where(total != total, total, size)).astype(array.dtype)
