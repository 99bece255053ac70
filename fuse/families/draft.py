"""A trace at the sizes of buckets in the making: values, their axes, and calls of programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fuse.backends import padding
from fuse.backends.written_once import WrittenOnce, target_of
from fuse.families.parts import (
    Axes,
    Refused,
    laid_out,
    marked,
    moving,
    order_of,
    room_of,
    shape_of,
    size_of,
)
from fuse.families.sizes import Marks, Slots
from fuse.trace.node import HostArg, Leaf, Node, Operand, Output, TensorArg, Trace
from fuse.trace.spec import Layout


class Offset(NamedTuple):
    """A word that is the offset of a view: the true strides of the parts that it goes over, their
    sizes, and their strides in the array."""

    slot: int
    strides: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Padded:
    """A trace at the sizes of buckets.

    Attributes:
        trace: it; ``words`` follow the words of the true one.
        leaves: the axes of each leaf's array.
        values: the axes of the arrays of every value.
        words: the true sizes.
        offsets: words of the true trace that are other numbers here.
        sizes: those that move; ``rooms`` is what they have room for.
    """

    trace: Trace
    leaves: tuple[Axes, ...]
    values: dict[int, Axes]
    words: bytes
    offsets: tuple[Offset, ...]
    sizes: tuple[int, ...]
    rooms: tuple[int, ...]

    def text(self) -> str:
        """What is said of it in a report."""
        elements = room_for = 0
        for axes in self.values.values():
            if moving(axes):
                elements += math.prod(map(size_of, axes))
                room_for += math.prod(map(room_of, axes))
        pairs = sorted(set(zip(self.sizes, self.rooms, strict=True)))
        rooms = ", ".join(f"{size} in room for {room}" for size, room in pairs)
        share = 1 - elements / max(room_for, 1)
        return f"family: sizes that move are {rooms}; {share:.0%} of these arrays are padding"


class Draft:
    """A trace at the sizes of buckets in the making.

    Attributes:
        trace: as recorded.
        marks: which of its sizes move.
        nodes: the calls so far.
        leaves: the axes of each leaf's array.
        values: the axes of the arrays of every value so far.
        offsets: words of the true trace that are other numbers here, by slot.
        unwritten: memory whose sizes move and that nothing was written to: whatever is written to
            all of it first says how it is padded.
    """

    def __init__(self, trace: Trace, marks: Marks) -> None:
        self.trace, self.marks = trace, marks
        self.nodes: list[Node] = []
        self.offsets: dict[int, Offset] = {}
        self.unwritten: set[int] = set()
        self._next = trace.next_value()
        self.leaves = tuple(
            tuple(marked(size, mark) for size, mark in zip(leaf.layout.shape, slots, strict=True))
            for leaf, slots in zip(trace.leaves, marks.leaves, strict=True)
        )
        pairs = zip(trace.leaves, self.leaves, strict=True)
        self.values: dict[int, Axes] = {leaf.value: axes for leaf, axes in pairs}
        self._known: dict[tuple[Any, ...], int] = {}
        self._read: set[int] = set()

    def result(self) -> Padded:
        """The trace of the calls."""
        words = np.array(self.marks.sizes, np.int64).tobytes()
        leaves = tuple(
            Leaf(leaf.value, Layout(leaf.layout.dtype, shape_of(axes)))
            for leaf, axes in zip(self.trace.leaves, self.leaves, strict=True)
        )
        total = self.trace.scalars + len(words) // 8
        trace = Trace(tuple(self.nodes), leaves, total)
        offsets = tuple(self.offsets.values())
        sizes, rooms = self.marks.sizes, self.marks.rooms
        return Padded(trace, self.leaves, self.values, words, offsets, sizes, rooms)

    def begin(self, operand: Operand, slots: Slots) -> None:
        """Memory that nothing was written to is as the first view of it says."""
        if operand.value in self.values:
            return
        order = order_of(operand.view, operand.layout)
        moves = any(slot is not None for slot in slots)
        if operand.initialised or (moves and order is None):
            raise Refused("the memory of an operand is not known")
        if not moves:
            axes = tuple(marked(size, None) for size in operand.layout.shape)
        else:
            pairs = list(zip(operand.view.shape, slots, strict=True))
            axes = tuple(marked(*pairs[dim]) for dim in order or ())
            self.unwritten.add(operand.value)
        self.values[operand.value] = axes

    def program(
        self,
        program: WrittenOnce,
        operands: Sequence[Operand],
        slots: Sequence[int],
        dtype: str,
        axes: Axes,
        offsets: Sequence[int | None] = (),
    ) -> int:
        """A value that a program makes; equal ones are made once. ``offsets`` as in ``node``."""
        seen = tuple((one.value, one.view) for one in operands)
        key = (program, seen, tuple(slots), tuple(offsets))
        if key not in self._known:
            view, layout, _ = laid_out(axes, range(len(axes)), dtype)
            output = Output(self.new(), view, layout)
            self.nodes.append(self.node(program, operands, slots, output, "", offsets))
            self.values[output.value] = axes
            self._known[key] = output.value
        return self._known[key]

    def recorded(self, slot: int) -> int:
        """A word of the recorded trace, among the slots of sizes. Raises ``Refused``."""
        if slot in self.offsets:
            raise Refused("two arrays have one offset")
        self._read.add(slot)
        return slot - self.trace.scalars

    def moves_offset(self, offset: Offset) -> None:
        """Have a word be another number here. Raises ``Refused`` where it is one already."""
        known = self.offsets.setdefault(offset.slot, offset)
        if known != offset or offset.slot in self._read:
            raise Refused("two arrays have one offset")

    def state(self) -> tuple[Any, ...]:
        """What ``restore`` needs, to try what may be refused."""
        kept = (self.offsets, self.values, self._known, self._read)
        return len(self.nodes), *(one.copy() for one in kept)

    def restore(self, before: tuple[Any, ...]) -> None:
        """Be as at a call of ``state``."""
        count, self.offsets, self.values, self._known, self._read = before
        del self.nodes[count:]

    def new(self) -> int:
        """The number of a value that the recorded trace has not."""
        self._next += 1
        return self._next - 1

    def node(
        self,
        program: WrittenOnce,
        operands: Sequence[Operand],
        slots: Sequence[int],
        output: Output,
        source: str,
        offsets: Sequence[int | None] = (),
    ) -> Node:
        """The call of a program, with the sizes of these slots.

        ``offsets`` are the words of operands' offsets that vary, ``None`` for those that do not.
        """
        places = range(1, 1 + len(slots))
        behind = range(1 + len(slots), 1 + len(slots) + len(operands))
        values = tuple(TensorArg(at) for at in range(len(operands)))
        sizes = tuple(HostArg("int64", 0, False, place) for place in places)
        words = [self.trace.scalars + slot for slot in slots]
        return Node(
            padding.OPERATOR,
            target_of(padding.OPERATOR, program),
            (values, sizes),
            tuple(replace(one, place=at) for one, at in zip(operands, behind, strict=True)),
            (output,),
            (),
            (0,),
            source=source,
            dynamic=(
                *zip(places, words, strict=True),
                *(
                    (at, slot)
                    for at, slot in zip(behind, offsets, strict=False)
                    if slot is not None
                ),
            ),
        )
