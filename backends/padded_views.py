"""Views of values with room, by their places among the values: any strides, and any offset.

Programs of ``fuse.families`` as those of ``backends.padding`` are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, final

from fuse.backends.padding import places_of, row_major
from fuse.backends.written_once import WrittenOnce, given_sizes


class Lens(NamedTuple):
    """Where the elements of a view lie among the values of an array.

    Attributes:
        rooms: of the array's parts.
        sizes: of them, ``None`` for those that are given.
        counts: the sizes of the view's dimensions, ``None`` for those that are given.
        steps: of each dimension how many steps it takes along each part; ``()`` where it goes on
            where the next one in ``order`` ends.
        order: the dimensions of more than one element, from that of the longest steps on.
        start: the view's first element, as ``steps``; ``()`` where the place of it is given.
    """

    rooms: tuple[int, ...]
    sizes: tuple[int | None, ...]
    counts: tuple[int | None, ...]
    steps: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    start: tuple[int, ...]

    def take(self, arrays: Sequence[Any]) -> Places:
        """What is given, in this order: the place of the first element, and both kinds of sizes."""
        left = list(arrays)
        first = None if self.start else left.pop(0).astype("int32")
        sizes = given_sizes(self.sizes, left)
        counts = given_sizes(self.counts, left[self.sizes.count(None) :])
        strides = row_major(sizes)
        if first is None:
            first = _product(self.start, strides)
        steps: dict[int, Any] = {}
        inner: Any = 1
        for dim in reversed(self.order):
            steps[dim] = _product(self.steps[dim], strides) if self.steps[dim] else inner
            inner = steps[dim] * counts[dim]
        return Places(sizes, counts, first, steps)


class Places(NamedTuple):
    """The numbers of a lens: sizes of parts and dimensions, the first place, and steps by dim."""

    sizes: list[Any]
    counts: list[Any]
    first: Any
    steps: dict[int, Any]


def _product(many: Sequence[int], strides: Sequence[Any]) -> Any:
    return sum((one * step for one, step in zip(many, strides, strict=True)), 0)


def _along(xp: ModuleType, rooms: Sequence[int], dim: int) -> Any:
    shape = [-1 if at == dim else 1 for at in range(len(rooms))]
    return xp.arange(rooms[dim], dtype="int32").reshape(shape)


@final
@dataclass(frozen=True)
class Viewed(WrittenOnce):
    """A view of an array's values, with room of its own: ``shape``."""

    lens: Lens
    shape: tuple[int, ...]

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the array, what of the view's place is given, and the sizes that are."""
        found = self.lens.take(arrays[1:])
        place = found.first
        for dim, step in found.steps.items():
            place = place + _along(xp, self.shape, dim) * step
        last = xp.maximum(math.prod(found.sizes) - 1, 0)
        place = xp.broadcast_to(xp.clip(place, 0, last), self.shape)
        return arrays[0].reshape(-1)[places_of(xp, place, found.sizes, self.lens.rooms)]


@final
@dataclass(frozen=True)
class Written(WrittenOnce):
    """An array whose values are others where a view of it goes, which has ``made`` for room."""

    lens: Lens
    made: tuple[int, ...]

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes the array, the values, what of the view's place is given, and sizes of both."""
        array, values = arrays[:2]
        found, rooms = self.lens.take(arrays[2:]), self.lens.rooms
        rest, inside = xp.zeros(rooms, "int32") - found.first, xp.ones(rooms, bool)
        for at, (size, step) in enumerate(zip(found.sizes, row_major(found.sizes), strict=True)):
            rest = rest + _along(xp, rooms, at) * step
            inside = inside & (_along(xp, rooms, at) < size)
        place = xp.zeros(rooms, "int32")
        for dim in self.lens.order:
            at = rest // xp.maximum(found.steps[dim], 1)
            inside = inside & (at >= 0) & (at < found.counts[dim])
            rest = rest - at * found.steps[dim]
            place = place + at * row_major(self.made)[dim]
        inside = inside & (rest == 0)
        taken = values.reshape(-1)[xp.where(inside, place, 0)]
        return xp.where(inside, taken, array.reshape(rooms)).reshape(array.shape)


@final
@dataclass(frozen=True)
class Laid(WrittenOnce):
    """Zeros, and values where a view of them goes."""

    lens: Lens
    made: tuple[int, ...]

    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """Takes what ``Written`` takes but for the array."""
        zeros = xp.zeros(self.lens.rooms, arrays[0].dtype)
        return Written(self.lens, self.made).make(xp, [zeros, *arrays])
