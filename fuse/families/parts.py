"""Axes with room: what of an array at a bucket's size is the value, and what is padding.

An axis is one of the dimensions of a value. It is made of parts, outermost first: ``(b, t)`` is a
first axis of two parts in ``view(b * t, c)``. A part whose size moves has room for more elements
than there are; those behind its size are padding, of whichever value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fuse.trace.spec import Layout, View, contiguous_strides


class Refused(Exception):
    """A trace cannot run at a bucket's sizes; the text says at which operation, and why."""


class Part(NamedTuple):
    """``size`` elements in ``room`` for more.

    ``slot`` is the number of the size among the family's, ``None`` for one that never moved.
    """

    size: int
    room: int
    slot: int | None = None

    @property
    def moves(self) -> bool:
        """Whether it is another one in another trace of the family."""
        return self.slot is not None


Axis = tuple[Part, ...]
Axes = tuple[Axis, ...]
ONE: Axis = (Part(1, 1),)


class Mark(NamedTuple):
    """A size that moves: its slot, and the room that it has in this trace."""

    slot: int
    room: int


def room(size: int) -> int:
    """The elements that a part of this size has room for: 8, or the next power of two.

    8 are the rows of a TPU's tile: fewer cost as much there. Padded work is 1.4 times the true one
    on average; 512 sizes have seven rooms.
    """
    return max(8, 1 << (size - 1).bit_length())


def fixed(size: int) -> Axis:
    """An axis that never moved."""
    return (Part(size, size),)


def marked(size: int, mark: Mark | None) -> Axis:
    """An axis of one part, of a size that moves or of one that never did."""
    return fixed(size) if mark is None else (Part(size, mark.room, mark.slot),)


def simple(axis: Axis) -> Axis:
    """The same axis in as few parts as there can be."""
    found: list[Part] = []
    for part in axis:
        if found and not part.moves and not found[-1].moves:
            size = found[-1].size * part.size
            found[-1] = Part(size, size)
        elif part.moves or part.size != 1:
            found.append(part)
    return tuple(part for part in found if part.moves or part.size != 1) or ONE


def size_of(axis: Axis) -> int:
    """The elements of the value."""
    return math.prod(part.size for part in axis)


def room_of(axis: Axis) -> int:
    """The elements of the array."""
    return math.prod(part.room for part in axis)


def moving(axes: Sequence[Axis]) -> bool:
    """Whether any of them has padding, or would have in another trace."""
    return any(part.moves for axis in axes for part in axis)


def shape_of(axes: Sequence[Axis]) -> tuple[int, ...]:
    """The array's shape."""
    return tuple(map(room_of, axes))


def order_of(view: View, layout: Layout) -> tuple[int, ...] | None:
    """The dimensions of a view in their order in memory; ``None`` where it is not all of it."""
    if view.covers(layout) and view.shape == layout.shape:
        return tuple(range(len(view.shape)))
    outermost = [
        math.inf if size == 1 else step for size, step in zip(view.shape, view.strides, strict=True)
    ]
    order = tuple(sorted(range(len(view.shape)), key=lambda dim: -outermost[dim]))
    shape = tuple(view.shape[dim] for dim in order)
    dense = contiguous_strides(shape)
    lies = all(
        size == 1 or view.strides[dim] == step
        for dim, size, step in zip(order, shape, dense, strict=True)
    )
    return order if lies and shape == layout.shape and view.offset == 0 else None


def behind(axis: Axis) -> bool:
    """Whether all padding lies behind all values: a position is its place then."""
    return not any(part.moves for part in simple(axis)[1:])


def same(one: Axis, other: Axis) -> bool:
    """Whether two axes are padded alike."""
    alike = size_of(one) == size_of(other) and room_of(one) == room_of(other)
    return simple(one) == simple(other) or (alike and behind(one) and behind(other))


def broadcast(every: Sequence[Axes]) -> Axes:
    """The axes of what is computed of these element by element. Raises ``Refused``."""
    rank = max(map(len, every), default=0)
    found = []
    for dim in range(-rank, 0):
        axes = [simple(one[dim]) for one in every if len(one) >= -dim]
        wide = [axis for axis in axes if size_of(axis) != 1]
        chosen = next((axis for axis in wide if moving([axis])), wide[0] if wide else axes[0])
        for axis in wide:
            if not same(axis, chosen):
                raise Refused("its operands have sizes that move in different ways")
        found.append(chosen)
    return tuple(found)


def laid_out(axes: Axes, order: Sequence[int], dtype: str) -> tuple[View, Layout, Axes]:
    """A new array of these axes, whose dimensions lie in memory in this order."""
    lying = tuple(axes[dim] for dim in order)
    shape = shape_of(lying)
    strides = dict(zip(order, contiguous_strides(shape), strict=True))
    view = View(dtype, shape_of(axes), tuple(strides[dim] for dim in range(len(axes))))
    return view, Layout(dtype, shape), lying


def flat_of(axes: Axes) -> Axis:
    """One axis of all elements; it is never padded again."""
    size = math.prod(shape_of(axes))
    return (Part(size, size),)


def parts_of(axes: Axes) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """Rooms, and the sizes that never move."""
    parts = [part for axis in axes for part in axis]
    return tuple(part.room for part in parts), tuple(
        None if part.moves else part.size for part in parts
    )


def slots_of(axes: Axes) -> tuple[int, ...]:
    """The slots of the sizes that move."""
    return tuple(part.slot for axis in axes for part in axis if part.slot is not None)


def limit(which: str, dtype: str) -> float:
    """The ``"least"`` or ``"most"`` of a dtype's numbers; or the one that sorts ``"last"``."""
    least = which == "least"
    if dtype == "bool":
        return float(not least)
    if dtype.startswith(("float", "bfloat")) and "8" not in dtype:
        return {"least": -math.inf, "most": math.inf, "last": math.nan}[which]
    if dtype.startswith(("int", "uint")):
        info = np.iinfo(dtype)
        return int(info.min if least else info.max)
    raise Refused(f"{dtype} has no order")


def check_sizes(axes: Axes | None, shape: Sequence[int]) -> None:
    """Raise ``Refused`` unless the axes are of this shape."""
    found = None if axes is None else tuple(map(size_of, axes))
    if found != tuple(shape):
        raise Refused(f"its result is {list(shape)}, not {found}")
