"""Which sizes of a trace move: those that differ from one trace of a form to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fuse.families.parts import Mark, room
from fuse.trace.node import Node, Trace

Slots = tuple[Mark | None, ...]
"""Of each dimension what is known of its size; ``None`` where it never moved."""
KEPT = 16
"""Traces whose sizes are remembered, to see which of them go together."""
NEAR = 8
"""Sizes that always differ by the same, and no more, have room together: a sequence and the one
that is a token longer are in the same bucket then, so that a bucket has one executable."""

SEVERAL = 3
"""Leaves that are alike but for one size have room together from so many on: else rows of several
lengths are in as many buckets as there are combinations."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Of a trace's leaves, and of each node's operands, outputs and writes.

    ``sizes`` are those that move, by slot, and ``rooms`` what they have room for.
    """

    leaves: tuple[Slots, ...]
    operands: tuple[tuple[Slots, ...], ...]
    outputs: tuple[tuple[Slots, ...], ...]
    writes: tuple[tuple[Slots, ...], ...]
    sizes: tuple[int, ...]
    rooms: tuple[int, ...]


class Moving:
    """What is known of the sizes of a form: those that were equal in every trace are one."""

    def __init__(self, trace: Trace) -> None:
        self.traces = 1
        self._sizes = _sizes(trace)
        self._numbers = [0] * len(self._sizes)  # of each size its vector
        self._vectors: list[tuple[int, ...]] = [()]
        self._moved = [False]
        self._split(self._sizes)

    def add(self, trace: Trace) -> None:
        """Learn from a trace of this form."""
        sizes = _sizes(trace)
        if sizes != self._sizes:
            self.traces += 1
            self._split(sizes)
            self._sizes = sizes

    def _split(self, sizes: list[int]) -> None:
        found: dict[tuple[int, int], int] = {}
        vectors: list[tuple[int, ...]] = []
        moved: list[bool] = []
        for at, size in enumerate(sizes):
            number = self._numbers[at]
            if (number, size) not in found:
                vector = self._vectors[number]
                found[number, size] = len(vectors)
                vectors.append((*vector[1 - KEPT :], size))
                moved.append(self._moved[number] or vector[-1:] not in ((), (size,)))
            self._numbers[at] = found[number, size]
        self._vectors, self._moved = vectors, moved

    def marks(self, trace: Trace) -> Marks:
        """The sizes that move of the trace that was added last."""
        slots: dict[int, Mark] = {}
        known: list[Mark | None] = []
        alike = self._alike(trace)
        for number in self._numbers:
            if self._moved[number] and number not in slots:
                most = max(self._room(one) for one in alike.get(number, (number,)))
                slots[number] = Mark(len(slots), most)
            known.append(slots.get(number))
        rest = iter(known)

        def take(shape: Sequence[int]) -> Slots:
            return tuple(next(rest) for _ in shape)

        leaves = tuple(take(leaf.layout.shape) for leaf in trace.leaves)
        operands, outputs, writes = [], [], []
        for node in trace.nodes:
            operands.append(tuple(take(operand.view.shape) for operand in node.operands))
            outputs.append(tuple(take(output.view.shape) for output in node.outputs))
            writes.append(tuple(take(write.view.shape) for write in node.writes))
        sizes = tuple(self._vectors[number][-1] for number in slots)
        rooms = tuple(mark.room for mark in slots.values())
        return Marks(leaves, tuple(operands), tuple(outputs), tuple(writes), sizes, rooms)

    def _alike(self, trace: Trace) -> dict[int, set[int]]:
        """Of a number those of leaves that differ in this size alone, where they are several."""
        found: dict[tuple[Any, ...], list[int]] = {}
        rest = iter(self._numbers)
        for leaf in trace.leaves:
            numbers = [next(rest) for _ in leaf.layout.shape]
            moved = [number for number in numbers if self._moved[number]]
            if len(moved) == 1:
                form = tuple(-1 if number in moved else number for number in numbers)
                found.setdefault((leaf.layout.dtype, form), []).append(moved[0])
        groups = [set(group) for group in found.values() if len(group) >= SEVERAL]
        return {number: group for group in groups for number in group}

    def _room(self, number: int) -> int:
        mine = self._vectors[number]
        together = [
            one[-1]
            for one, moved in zip(self._vectors, self._moved, strict=True)
            if moved and _go_together(one, mine)
        ]
        return room(max(together))


def _go_together(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    apart = one[-1] - other[-1]
    return abs(apart) <= NEAR and all(a - b == apart for a, b in zip(one, other, strict=True))


def _sizes(trace: Trace) -> list[int]:
    found = [size for leaf in trace.leaves for size in leaf.layout.shape]
    found += [size for node in trace.nodes for size in _of_node(node)]
    return found


def _of_node(node: Node) -> Iterator[int]:
    for operand in node.operands:
        yield from operand.view.shape
    for part in node.parts():
        yield from part.view.shape


def form_of(trace: Trace) -> int:
    """Equal for traces that differ in sizes and numbers only, as a rule.

    A size of one is none of these: a step of decoding is no short prompt.
    """
    parts = [
        (
            node.op,
            tuple((one.value, _ones(one.view.shape)) for one in node.operands),
            tuple((part.value, part.view.dtype, _ones(part.view.shape)) for part in node.parts()),
            tuple(write.operand for write in node.writes),
        )
        for node in trace.nodes
    ]
    leaves = [(leaf.value, leaf.layout.dtype, _ones(leaf.layout.shape)) for leaf in trace.leaves]
    return hash((tuple(leaves), tuple(parts)))


def _ones(shape: Sequence[int]) -> tuple[bool, ...]:
    return tuple(size == 1 for size in shape)
