"""Views at a bucket's size: which parts of an array each dimension of a view goes over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuse.families.parts import (
    ONE,
    Axes,
    Axis,
    Mark,
    Part,
    Refused,
    marked,
    shape_of,
    simple,
)
from fuse.trace.node import Operand
from fuse.trace.spec import Layout, View, contiguous_strides
from fuse.trace.views import dynamic_bounds


@dataclass(frozen=True, slots=True)
class Move:
    """Of the parts of an array, where each begins to be taken, and the room that it then has."""

    parts: tuple[Part, ...]
    starts: tuple[int, ...]
    made: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """An operand at a bucket's size.

    Attributes:
        axes: of its dimensions.
        view: over the array, or over what ``move`` makes of it.
        move: what is to be done before; ``None`` for nothing.
        strides: for an offset that varies: of each part the true stride, its size and its stride
            in the array.
        partial: whether it is some of a size that moves, and how much of it moves too.
    """

    axes: Axes
    view: View
    move: Move | None
    strides: tuple[tuple[int, int, int], ...] = ()
    partial: bool = False


def seen(view: View, layout: Axes, marks: Sequence[Mark | None], varies: bool) -> Seen:
    """A view of a value, over its array.

    ``layout`` are the axes of the array's dimensions, ``marks`` say which of the view's sizes move,
    and ``varies`` whether its offset is a number of the trace's. Raises ``Refused``.
    """
    parts = [part for axis in layout for part in axis if part.size != 1 or part.moves]
    if any(part.moves and part.size == 1 for part in parts):
        raise Refused("a size is one")
    return _Reader(view, parts, marks, varies).result()


class _Reader:
    """Finds the parts that each dimension of a view goes over."""

    def __init__(
        self, view: View, parts: list[Part], marks: Sequence[Mark | None], varies: bool
    ) -> None:
        self.view, self.parts, self.marks, self.varies = view, parts, marks, varies
        self.true = contiguous_strides(tuple(part.size for part in parts))
        self.starts = [
            0 if varies else view.offset // step % max(part.size, 1)
            for step, part in zip(self.true, parts, strict=True)
        ]
        self.reach = list(self.starts)  # the last element taken of each part, at bucket's sizes
        self.moves: dict[int, Part] = {}
        self.partial = False

    def result(self) -> Seen:
        found = [self._dimension(dim) for dim in range(len(self.view.shape))]
        for part, last in zip(self.parts, self.reach, strict=True):
            if last >= part.room and not self.varies:
                raise Refused("a view goes over the border of a dimension")
        made = [self.moves.get(at, part) for at, part in enumerate(self.parts)]
        steps = contiguous_strides(tuple(part.room for part in made))
        strides = tuple(0 if at is None else steps[at] * step for _, at, step in found)
        starts = [0 if at in self.moves else start for at, start in enumerate(self.starts)]
        axes = tuple(simple(axis) for axis, _, _ in found)
        offset = sum(start * step for start, step in zip(starts, steps, strict=True))
        move = None
        if self.moves:
            begins = tuple(self.starts[at] if at in self.moves else 0 for at in range(len(made)))
            move = Move(tuple(self.parts), begins, tuple(made))
        over = tuple(
            (true, part.size, step)
            for true, part, step in zip(self.true, self.parts, steps, strict=True)
        )
        made_view = View(self.view.dtype, shape_of(axes), strides, offset)
        return Seen(axes, made_view, move, over, self.partial)

    def _dimension(self, dim: int) -> tuple[Axis, int | None, int]:
        """The axis, its innermost part and the step in it."""
        size, step, mark = self.view.shape[dim], self.view.strides[dim], self.marks[dim]
        if size == 1:
            if mark is not None:
                raise Refused("a size is one")
            return ONE, None, 0
        if step == 0:
            return marked(size, mark), None, 0
        for at in reversed(range(len(self.parts))):
            true, part = self.true[at], self.parts[at]
            if true <= step < true * part.size and step % true == 0:
                return self._over(at, size, step // true, mark), at, step // true
        raise Refused("a view goes over the border of a dimension")

    def _over(self, at: int, size: int, step: int, mark: Mark | None) -> Axis:
        part = self.parts[at]
        if step == 1 and size >= part.size and (part.moves or mark is None or size > part.size):
            return self._whole(at, size)
        if part.moves and step > 1:
            raise Refused("a view takes every so-manieth element of a size that moves")
        (new,) = marked(size, mark)
        if not self.varies and self.starts[at] + (size - 1) * step >= part.size:
            raise Refused("a view goes over the border of a dimension")
        self.partial = self.partial or mark is not None
        if mark is None:
            self.reach[at] += (size - 1) * step
        elif self.varies:
            raise Refused("a view that moves begins anywhere")
        elif self.starts[at] + (new.room - 1) * step < part.room:
            self.reach[at] += (new.room - 1) * step
        elif step == 1 and at not in self.moves:
            self.moves[at] = new
        else:
            raise Refused("a view of a size that moves has no room")
        return (new,)

    def _whole(self, at: int, size: int) -> Axis:
        """Whole parts from this one outwards, and perhaps some of the next one."""
        found: list[Part] = []
        while size > 1 and at >= 0:
            part = self.parts[at]
            if size < part.size:
                if part.moves or found[-1:] == [] or self.starts[at] + size > part.size:
                    raise Refused("a view goes over the border of a dimension")
                found.append(Part(size, size))
                self.reach[at] += size - 1
                break
            if size % part.size or self.starts[at]:
                raise Refused("a view goes over the border of a dimension")
            found.append(part)
            self.reach[at] += part.room - 1
            size, at = size // part.size, at - 1
        return tuple(reversed(found))


def check_offset(operand: Operand, layout: Layout, found: Seen) -> None:
    """Raise ``Refused`` unless every offset that varies finds here what it finds in the true array.

    Dimension by dimension of what the view is resolved to: each lies in one part, and has at least
    as many starts as there.
    """
    ours, theirs = dynamic_bounds(layout, found.view), dynamic_bounds(operand.layout, operand.view)
    if ours is None or theirs is None or len(ours) != len(theirs):
        raise Refused("a view begins anywhere")
    for (step, size, extent), (true, true_size, true_extent) in zip(ours, theirs, strict=True):
        inside = any(
            part <= true and true * true_size <= part * count and step == true // part * room_step
            for part, count, room_step in found.strides
        )
        if true_size > 1 and (not inside or size - extent < true_size - true_extent):
            raise Refused("a view begins anywhere")
