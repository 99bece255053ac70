"""A call on its way to the sizes of buckets: what a rule asks of it, and does to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from fuse.backends import padding
from fuse.families.draft import Draft, Offset
from fuse.families.flat import run_flat
from fuse.families.parts import (
    Axes,
    Part,
    Refused,
    broadcast,
    check_sizes,
    flat_of,
    laid_out,
    limit,
    marked,
    moving,
    order_of,
    parts_of,
    same,
    shape_of,
    simple,
    slots_of,
)
from fuse.families.sizes import Slots
from fuse.families.views import Seen, check_offset, seen
from fuse.trace.bind import named
from fuse.trace.functional import schema_of
from fuse.trace.node import HostArg, Node, NumberArg, Operand, Output, TensorArg, Write
from fuse.trace.spec import Layout, View, contiguous_strides

Results = Sequence[Axes | None]
Rule = Callable[["Call"], Results]
"""The axes of each result of a call's target, after what it fills and replaces."""
NOWHERE = -1
"""The place of an offset that never varies."""


class Call:
    """A call on its way to a bucket's sizes.

    Attributes:
        node: as recorded.
        axes: of each operand's view.
        made: the slots of the sizes of each output, and of each write.
    """

    def __init__(
        self,
        draft: Draft,
        node: Node,
        operands: Sequence[Slots],
        made: Sequence[Slots],
    ) -> None:
        self.node, self.made = node, made
        self._draft = draft
        self._given = named(node)
        self._args = list(node.args)
        self._operands = list(node.operands)
        self._factors: dict[int, float] = {}
        self._wider: dict[int, Axes] = {}
        self._is_flat = False
        self._instead: tuple[padding.Padding, tuple[int, ...], tuple[int, ...]] | None = None
        seen_ones = [self._read(at, slots) for at, slots in enumerate(operands)]
        self.axes = [one.axes for one in seen_ones]
        self._whole = [not one.partial and one.move is None for one in seen_ones]

    def _read(self, at: int, slots: Slots) -> Seen:
        operand, draft = self._operands[at], self._draft
        axes, slot = draft.values[operand.value], self.node.slot_of(operand.place)
        if not moving(axes) and all(mark is None for mark in slots):
            fixed = tuple(marked(size, None) for size in operand.view.shape)
            return Seen(fixed, operand.view, None)
        if operand.view.dtype != operand.layout.dtype:
            raise Refused("a view is of another dtype")
        found = seen(operand.view, axes, slots, slot is not None)
        value = operand.value
        if found.move is not None:
            move = found.move
            made = tuple((part,) for part in move.made)
            program = padding.Moved(
                tuple(part.room for part in move.parts),
                move.starts,
                tuple(part.room for part in move.made),
                shape_of(made),
            )
            whole = _whole(operand, axes)
            value = draft.program(program, [whole], (), operand.view.dtype, made)
            axes = made
        layout = Layout(operand.layout.dtype, shape_of(axes))
        self._operands[at] = replace(operand, value=value, view=found.view, layout=layout)
        if slot is not None:
            check_offset(operand, layout, found)
            draft.offsets[slot] = Offset(slot, found.strides)
        return found

    @property
    def schema(self) -> Sequence[torch._C.Argument]:
        """The arguments of the target."""
        return schema_of(self.node.target).arguments

    # ---- what a rule asks -----------------------------------------------------------------

    def given(self, name: str) -> Any:
        """An argument as recorded, by its name in the schema; a number is what it is."""
        value = self._given[name]
        if not isinstance(value, (HostArg, NumberArg)):
            return value
        if self.node.slot_of(value.place) is not None:
            raise Refused(f"{name} is an input")
        return value.number

    def optional(self, name: str, default: Any) -> Any:
        """An argument that not every overload has."""
        return self.given(name) if name in self._given else default

    def operand(self, name: str) -> int | None:
        """The number of the operand that is this argument."""
        value = self._given[name]
        return value.index if isinstance(value, TensorArg) else None

    def axes_of(self, name: str) -> Axes:
        """The axes of an argument that is a tensor."""
        at = self.operand(name)
        if at is None:
            raise Refused(f"{name} is no tensor of the device")
        return self.axes[at]

    def known(self) -> list[Axes]:
        """The axes of the operands but memory that is written as a whole, which has none yet."""
        first = self._written_first()
        return [axes for at, axes in enumerate(self.axes) if at not in first] or self.axes

    def _written_first(self) -> set[int]:
        operands, unwritten = self.node.operands, self._draft.unwritten
        return {
            write.operand
            for write in self.node.writes
            if operands[write.operand].value in unwritten
            and order_of(write.view, write.layout) is not None
        }

    def recorded(self, name: str) -> Axes | None:
        """The axes of a tensor as it was given; ``None`` where there was none."""
        at = self.operand(name)
        return None if at is None else self.axes[at]

    def fill(self, name: str | int, number: float | str, dims: Iterable[int] | None = None) -> None:
        """Have ``number`` in the padding of an operand along some of its dimensions, or all.

        ``"least"`` and ``"most"`` are the dtype's.
        """
        at = self.operand(name) if isinstance(name, str) else name
        if at is None:
            return
        axes = self.axes[at]
        wanted = {dim % len(axes) for dim in (range(len(axes)) if dims is None else dims)}
        parts = [(part, dim in wanted) for dim, axis in enumerate(axes) for part in axis]
        places = tuple(i for i, (part, inside) in enumerate(parts) if inside and part.moves)
        if not places:
            return
        if any(write.operand == at for write in self.node.writes):
            raise Refused("it writes what it reads along")
        operand = self._operands[at]
        value = limit(number, operand.view.dtype) if isinstance(number, str) else number
        program = padding.Fill(tuple(part.room for part, _ in parts), places, value)
        slots = [parts[place][0].slot or 0 for place in places]
        self._replace(at, program, slots, axes)

    def _replace(self, at: int, program: padding.Padding, slots: Sequence[int], axes: Axes) -> None:
        operand = self._operands[at]
        dtype, offsets = operand.view.dtype, [self._offset(operand)]
        made = self._draft.program(program, [operand], slots, dtype, axes, offsets)
        view, layout, _ = laid_out(axes, range(len(axes)), dtype)
        # It lies at the start of its own memory, whatever the recorded one's offset is.
        self._operands[at] = Operand(made, view, layout, NOWHERE)

    def _offset(self, operand: Operand) -> int | None:
        return self.node.slot_of(operand.place)

    def replace(self, name: str, value: Any) -> None:
        """Another value of an argument that is no tensor."""
        names = [argument.name for argument in schema_of(self.node.op).arguments]
        if name in names:
            at = names.index(name)
            known = self._args[at]
            if isinstance(known, (HostArg, NumberArg)):
                value = replace(known, number=value)
            self._args[at] = value

    def scale(self, result: int, number: float) -> None:
        """Multiply a result by a number that is made of sizes."""
        self._factors[result] = number

    def fit(self, name: str, axes: Axes) -> None:
        """Give an operand the room of these axes, which have the same sizes."""
        at = self.operand(name)
        before, rooms = parts_of(self.axes[at or 0])[0], parts_of(axes)[0]
        if at is None or before == rooms:
            return
        if len(before) != len(rooms):
            raise Refused("an axis is of several sizes")
        program = padding.Moved(before, (0,) * len(before), rooms, shape_of(axes))
        self._replace(at, program, (), axes)

    def wider(self, result: int, axes: Axes) -> None:
        """Say that a result comes with the room of these axes, not with that of its own."""
        self._wider[result] = axes

    def add_operand(self, name: str, program: padding.Padding, part: Part, view: View) -> None:
        """Give an argument that was ``None`` a value: what a program makes of a part's size."""
        value = self._draft.program(program, [], [part.slot or 0], view.dtype, ((part,),))
        layout = Layout(view.dtype, (part.room,))
        self._operands.append(Operand(value, view, layout, NOWHERE))
        self.replace(name, TensorArg(len(self._operands) - 1))

    def joined(self, dim: int, parts: Sequence[int]) -> Axes:
        """Make the operands ``parts`` behind each other in place of the call; the result's axes."""
        (mark,) = {slots[dim] for slots in self.made}
        (shape,) = {output.view.shape for output in self.node.outputs}
        every = [self.axes[at] for at in parts]
        rest = broadcast([tuple(a for d, a in enumerate(axes) if d != dim) for axes in every])
        axes = (*rest[:dim], marked(shape[dim], mark), *rest[dim:])
        along = [simple(one[dim]) for one in every]
        if any(len(axis) != 1 for axis in along):
            raise Refused("it joins along an axis of several sizes")
        for axes_of_one in every:
            for at, axis in enumerate(axes_of_one):
                if at != dim and not same(axis, axes[at]):
                    raise Refused("its operands have sizes that move in different ways")
        sizes = tuple(None if part.moves else part.size for (part,) in along)
        slots = [part.slot for (part,) in along if part.slot is not None]
        self._instead = padding.Joined(dim, shape_of(axes), sizes), tuple(parts), tuple(slots)
        return axes

    def instead(self, program: padding.Padding, names: Sequence[str], slots: Sequence[int]) -> None:
        """Run a program on these arguments in place of the call."""
        parts = [at for name in names if (at := self.operand(name)) is not None]
        self._instead = program, tuple(parts), tuple(slots)

    def flat(self) -> None:
        """Run the call on the values alone, one behind the other, and give them room again.

        For what draws a number for each of them, in their order.
        """
        for at, axes in enumerate(self.axes):
            if moving(axes):
                program = padding.Compact(*parts_of(axes))
                self._replace(at, program, slots_of(axes), (flat_of(axes),))
        self._is_flat = True

    def _replaced(self, outputs: Sequence[Output]) -> Node:
        assert self._instead is not None
        program, parts, slots = self._instead
        operands = [self._operands[at] for at in parts]
        offsets = [self._offset(operand) for operand in operands]
        source = self.node.source
        return self._draft.node(program, operands, slots, outputs[0], source, offsets)

    # ---- carrying it out ------------------------------------------------------------------

    def run(self, rule: Rule) -> None:
        """Add the call to the draft."""
        results = rule(self)
        if self._is_flat:
            given = replace(self.node, args=tuple(self._args), operands=tuple(self._operands))
            run_flat(self._draft, self.node, given, results)
            return
        node, values = self.node, self._draft.values
        outputs, writes = list(node.outputs), list(node.writes)
        after: list[Node] = []
        for number, slot in enumerate(node.slots):
            if slot is None:
                continue
            axes = results[number]
            if slot < len(outputs):
                output = outputs[slot]
                check_sizes(axes, output.view.shape)
                outputs[slot], values[output.value] = _output(output, axes or ())
            else:
                write = writes[slot - len(outputs)]
                check_sizes(axes, write.view.shape)
                writes[slot - len(outputs)], values[write.value] = self._write(write, axes or ())
            if number in self._wider and slot < len(outputs):
                outputs[slot], last = self._narrowed(outputs[slot], self._wider[number])
                after.append(last)
            if number in self._factors:
                if slot >= len(outputs):
                    raise Refused("a mean is written into memory that is there")
                outputs[slot], last = self._scaled(outputs[slot], self._factors[number])
                after.append(last)
        if self._instead is not None:
            self._draft.nodes.append(self._replaced(outputs))
            return
        self._draft.nodes.append(
            replace(
                node,
                args=tuple(self._args),
                operands=tuple(self._operands),
                outputs=tuple(outputs),
                writes=tuple(writes),
            )
        )
        self._draft.nodes += after

    def _write(self, write: Write, axes: Axes) -> tuple[Write, Axes]:
        operand = self._operands[write.operand]
        recorded = self.node.operands[write.operand]
        resized = write.view != recorded.view or write.layout != recorded.layout
        if resized or write.operand in self._written_first():
            order = order_of(write.view, write.layout)
            if order is None:
                raise Refused("it resizes what it writes")
            view, layout, lying = laid_out(axes, order, write.layout.dtype)
            return replace(write, view=view, layout=layout), lying
        if not self._whole[write.operand]:
            raise Refused("it writes some of a size that moves")
        _agree(axes, self.axes[write.operand])
        lying = self._draft.values[recorded.value]
        return replace(write, view=operand.view, layout=operand.layout), lying

    def _narrowed(self, output: Output, axes: Axes) -> tuple[Output, Node]:
        """The output with other room, and the node that makes the recorded one of it."""
        draft = self._draft
        view, layout, _ = laid_out(axes, range(len(axes)), output.layout.dtype)
        wide = Output(draft.new(), view, layout)
        draft.values[wide.value] = axes
        rooms, made = parts_of(axes)[0], output.view.shape
        program = padding.Moved(rooms, (0,) * len(rooms), made, made)
        operand = Operand(wide.value, view, layout, 0)
        return wide, draft.node(program, [operand], (), output, self.node.source)

    def _scaled(self, output: Output, number: float) -> tuple[Output, Node]:
        """The output under another number, and the node that makes the recorded one of it."""
        draft = self._draft
        value = draft.new()
        draft.values[value] = draft.values[output.value]
        factor = HostArg("float64", 0.0, True, 1)
        node = Node(
            "mul.Tensor",
            "mul.Tensor",
            (TensorArg(0), factor),
            (Operand(value, output.view, output.layout, 0),),
            (output,),
            (),
            (0,),
            source=self.node.source,
            dynamic=((1, draft.factor(number)),),
        )
        return replace(output, value=value), node


def _whole(operand: Operand, axes: Axes) -> Operand:
    """All of an operand's array."""
    layout = Layout(operand.layout.dtype, shape_of(axes))
    view = View(layout.dtype, layout.shape, contiguous_strides(layout.shape))
    return Operand(operand.value, view, layout, 0, operand.fresh, operand.initialised)


def _output(output: Output, axes: Axes) -> tuple[Output, Axes]:
    order = order_of(output.view, output.layout)
    if order is None:
        raise Refused("a result does not fill its memory")
    view, layout, lying = laid_out(axes, order, output.layout.dtype)
    if output.view.dtype != layout.dtype:
        raise Refused("a view is of another dtype")
    return replace(output, view=view, layout=layout), lying


def _agree(one: Axes, other: Axes) -> None:
    if tuple(map(simple, one)) != tuple(map(simple, other)):
        raise Refused("its result has other padding than what it is written to")
