"""Calls that draw a number for each element: run on the values alone, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuse.backends import padding
from fuse.families.draft import Draft
from fuse.families.parts import (
    Axes,
    Refused,
    check_sizes,
    flat_of,
    laid_out,
    parts_of,
    shape_of,
    slots_of,
)
from fuse.trace.node import Node, Operand, Output, Write
from fuse.trace.spec import contiguous_strides


def run_flat(draft: Draft, node: Node, given: Node, results: Sequence[Axes | None]) -> None:
    """Add a call whose operands, as ``given``, are flat, and give its results room again.

    ``node`` is the call as recorded. Raises ``Refused``.
    """
    parts = node.parts()
    order = [slot for slot in node.slots if slot is not None]
    if order != sorted(order) or any(
        one.view.strides != contiguous_strides(one.view.shape) for one in parts
    ):
        raise Refused("its results lie in another order")
    made: list[Output] = []
    after: list[Node] = []
    for number, slot in enumerate(node.slots):
        if slot is not None:
            axes, part = results[number], parts[slot]
            check_sizes(axes, part.view.shape)
            if isinstance(part, Write) and not _covers(node, part):
                raise Refused("it draws into some of its memory")
            output, last = _spread(draft, part, axes or (), node.source)
            made.append(output)
            after.append(last)
    draft.nodes += [replace(given, outputs=tuple(made), writes=()), *after]


def _spread(draft: Draft, part: Output | Write, axes: Axes, source: str) -> tuple[Output, Node]:
    """A flat result in the place of one with room, and the node that makes that of it."""
    dtype = part.view.dtype
    view, layout, _ = laid_out((flat_of(axes),), (0,), dtype)
    flat = Output(draft.new(), view, layout)
    draft.values[flat.value] = (flat_of(axes),)
    program = padding.Spread(*parts_of(axes), shape_of(axes))
    view, layout, _ = laid_out(axes, range(len(axes)), dtype)
    draft.values[part.value] = axes
    operand = Operand(flat.value, flat.view, flat.layout, 0)
    made = Output(part.value, view, layout)
    return flat, draft.node(program, [operand], slots_of(axes), made, source)


def _covers(node: Node, write: Write) -> bool:
    return node.operands[write.operand].view == write.view and write.view.covers(write.layout)
