"""What a call reads and writes, at the sizes of buckets: views of arrays with room."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from fuse.backends import padding
from fuse.backends.padded_views import Viewed, Written
from fuse.families.draft import Draft, Offset
from fuse.families.lenses import check_apart, lens_of
from fuse.families.parts import (
    Axes,
    Refused,
    laid_out,
    marked,
    moving,
    order_of,
    shape_of,
)
from fuse.families.sizes import Slots
from fuse.families.views import Move, check_offset, seen
from fuse.trace.node import Node, Operand, Output, Write
from fuse.trace.spec import Layout, View, contiguous_strides

NOWHERE = -1
"""The place of an offset that never varies."""


class Given(NamedTuple):
    """An operand at a bucket's size, and the axes of its view.

    ``whole`` says that what is written to it may fill all of its room.
    """

    operand: Operand
    axes: Axes
    whole: bool


def given(draft: Draft, node: Node, operand: Operand, slots: Slots, compact: bool = False) -> Given:
    """An operand of a recorded call, ``compact`` with no dimension of several sizes.

    Raises ``Refused``.
    """
    axes = draft.values[operand.value]
    if not moving(axes) and all(mark is None for mark in slots):
        fixed = tuple(marked(size, None) for size in operand.view.shape)
        return Given(operand, fixed, True)
    if operand.view.dtype != operand.layout.dtype:
        raise Refused("a view is of another dtype")
    before = draft.state()
    try:
        found = _sliced(draft, node, operand, slots)
        if all(len(axis) == 1 for axis in found.axes) or not compact:
            return found
    except Refused as refused:
        draft.restore(before)
        return _viewed(draft, node, operand, slots, refused)
    draft.restore(before)
    return _viewed(draft, node, operand, slots, Refused("a size is one"))


def _sliced(draft: Draft, node: Node, operand: Operand, slots: Slots) -> Given:
    """What slices of the array make."""
    axes, slot, value = draft.values[operand.value], node.slot_of(operand.place), operand.value
    found = seen(operand.view, axes, slots, slot is not None)
    if found.move is not None:
        value, axes = _moved(draft, operand, found.move)
    layout = Layout(operand.layout.dtype, shape_of(axes))
    made = replace(operand, value=value, view=found.view, layout=layout)
    if slot is not None:
        check_offset(operand, layout, found)
        draft.moves_offset(Offset(slot, found.strides))
    return Given(made, found.axes, not found.partial and found.move is None)


def _moved(draft: Draft, operand: Operand, move: Move) -> tuple[int, Axes]:
    made = tuple((part,) for part in move.made)
    program = padding.Moved(
        tuple(part.room for part in move.parts),
        move.starts,
        tuple(part.room for part in move.made),
        shape_of(made),
    )
    whole = whole_of(operand, draft.values[operand.value])
    return draft.program(program, [whole], (), operand.view.dtype, made), made


def _viewed(draft: Draft, node: Node, operand: Operand, slots: Slots, refused: Refused) -> Given:
    """What is gathered from the places of the view's elements."""
    axes, view = draft.values[operand.value], operand.view
    if any(mark is not None and size == 1 for mark, size in zip(slots, view.shape, strict=True)):
        raise refused
    if any(part.moves and part.size == 1 for axis in axes for part in axis):
        raise refused
    slot = node.slot_of(operand.place)
    made = tuple(marked(size, mark) for size, mark in zip(view.shape, slots, strict=True))
    lens, sizes = lens_of(view, axes, made, slot is not None)
    words = sizes if slot is None else (draft.recorded(slot), *sizes)
    program = Viewed(lens, shape_of(made))
    value = draft.program(program, [whole_of(operand, axes)], words, view.dtype, made)
    return Given(_new(value, view.dtype, made), made, False)


def _new(value: int, dtype: str, axes: Axes) -> Operand:
    """All of an array that a call has made."""
    view, layout, _ = laid_out(axes, range(len(axes)), dtype)
    return Operand(value, view, layout, NOWHERE)


def written(draft: Draft, node: Node, write: Write, axes: Axes) -> tuple[Output, Node]:
    """What a call makes instead of writing some of an array, and the node that puts it there.

    ``axes`` are those of what it makes. Raises ``Refused``.
    """
    operand, dtype = node.operands[write.operand], write.view.dtype
    array = draft.values[operand.value]
    slot = node.slot_of(operand.place)
    check_apart(write.view)
    lens, sizes = lens_of(write.view, array, axes, slot is not None)
    words = sizes if slot is None else (draft.recorded(slot), *sizes)
    program = Written(lens, shape_of(axes))
    view, layout, _ = laid_out(axes, range(len(axes)), dtype)
    made = Output(draft.new(), view, layout)
    draft.values[made.value], draft.values[write.value] = axes, array
    given = [whole_of(operand, array), Operand(made.value, view, layout, NOWHERE)]
    view, layout, _ = laid_out(array, range(len(array)), dtype)
    return made, draft.node(program, given, words, Output(write.value, view, layout), node.source)


def whole_of(operand: Operand, axes: Axes) -> Operand:
    """All of an operand's array."""
    layout = Layout(operand.layout.dtype, shape_of(axes))
    view = View(layout.dtype, layout.shape, contiguous_strides(layout.shape))
    return Operand(operand.value, view, layout, NOWHERE, operand.fresh, operand.initialised)


def output(recorded: Output, axes: Axes) -> tuple[Output, Axes]:
    """A result of these axes, and those of its array. Raises ``Refused``."""
    order = order_of(recorded.view, recorded.layout)
    if order is None:
        raise Refused("a result does not fill its memory")
    view, layout, lying = laid_out(axes, order, recorded.layout.dtype)
    if recorded.view.dtype != layout.dtype:
        raise Refused("a view is of another dtype")
    return replace(recorded, view=view, layout=layout), lying
