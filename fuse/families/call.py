"""A call on its way to the sizes of buckets: what a rule asks of it, and does to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from fuse.backends import padding
from fuse.backends.padded_places import Capped, Located, Ranked
from fuse.backends.written_once import WrittenOnce
from fuse.families.draft import Draft
from fuse.families.flat import run_flat
from fuse.families.operands import NOWHERE, given, output, written
from fuse.families.parts import (
    Axes,
    Axis,
    Part,
    Refused,
    behind,
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
from fuse.trace.bind import named
from fuse.trace.functional import schema_of
from fuse.trace.node import HostArg, Node, NumberArg, Operand, Output, TensorArg, Write
from fuse.trace.spec import Layout, View

Results = Sequence[Axes | None]
Rule = Callable[["Call"], Results]
"""The axes of each result of a call's target, after what it fills and replaces."""


class Then(NamedTuple):
    """What is made of a result: by a program, of sizes, and the axes that the call gives it."""

    program: WrittenOnce
    slots: tuple[int, ...]
    axes: Axes | None


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
        compact: bool = False,
    ) -> None:
        self.node, self.made = node, made
        self._draft = draft
        self._given = named(node)
        self._args = list(node.args)
        self._then: dict[int, Then] = {}
        self._is_flat = self._is_apart = False
        self._instead: tuple[WrittenOnce, tuple[int, ...], tuple[int, ...]] | None = None
        pairs = zip(node.operands, operands, strict=True)
        every = [given(draft, node, *pair, compact) for pair in pairs]
        self._operands = [one.operand for one in every]
        self.axes = [one.axes for one in every]
        self._whole = [one.whole for one in every]

    @property
    def schema(self) -> Sequence[torch._C.Argument]:
        """The arguments of the target."""
        return schema_of(self.node.target).arguments

    # ---- what a rule asks -----------------------------------------------------------------

    def given(self, name: str) -> Any:
        """An argument as recorded, by its name in the schema; a number is what it is."""
        return self._number(name, self._given[name])

    def _number(self, name: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._number(name, one) for one in value)
        if not isinstance(value, (HostArg, NumberArg)):
            return value
        if self.node.slot_of(value.place) is not None:
            raise Refused(f"{name} is an input")
        return value.number

    def optional(self, name: str, default: Any) -> Any:
        """An argument that not every overload has."""
        return self.given(name) if name in self._given else default

    def has(self, name: str) -> bool:
        """Whether an argument, which not every overload has, is a tensor of the device."""
        return isinstance(self._given.get(name), TensorArg)

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
        operand = self._operands[at]
        value = limit(number, operand.view.dtype) if isinstance(number, str) else number
        program = padding.Fill(tuple(part.room for part, _ in parts), places, value)
        slots = [parts[place][0].slot or 0 for place in places]
        self._replace(at, program, slots, axes)

    def _replace(self, at: int, program: WrittenOnce, slots: Sequence[int], axes: Axes) -> None:
        operand = self._operands[at]
        self._is_apart |= any(write.operand == at for write in self.node.writes)
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

    def scale(self, result: int, reduced: Axes) -> None:
        """Divide a mean over these axes by their size, not by their room."""
        parts = [part for axis in reduced for part in axis if part.slot is not None]
        if parts:
            program = padding.Scaled(tuple(part.room for part in parts))
            self._then[result] = Then(program, slots_of(reduced), None)

    def locate(
        self, name: str | int, axis: Axis, wraps: bool = False, longer: bool = False
    ) -> None:
        """Have what are positions among an axis's values be places in its array; 0 in padding.

        ``wraps`` where those below 0 count from the end, ``longer`` where the array's is another.
        """
        at = self.operand(name) if isinstance(name, str) else name
        parts = simple(axis)
        self.fill(name, 0)
        needs = moving((parts,)) and (wraps or not behind(parts))
        if at is not None and (longer or needs):
            program = Located(*parts_of((parts,)))
            self._replace(at, program, slots_of((parts,)), self.axes[at])

    def rank(self, result: int, axis: Axis) -> None:
        """Say that a result is places in the array of an axis: it is to be positions."""
        parts = simple(axis)
        if not behind(parts):
            self._then[result] = Then(Ranked(*parts_of((parts,))), slots_of((parts,)), None)

    def cap(self, result: int, axis: Axis) -> None:
        """Have no number of a result be larger than an axis's size."""
        if moving((axis,)):
            program = Capped(parts_of((axis,))[1])
            self._then[result] = Then(program, slots_of((axis,)), None)

    def word(self, name: str) -> int | None:
        """The slot of a number that is an input; ``None`` where it is not."""
        value = self._given[name]
        slot = None
        if isinstance(value, (HostArg, NumberArg)):
            slot = self.node.slot_of(value.place)
        return None if slot is None else self._draft.recorded(slot)

    def fit(self, name: str, axes: Axes) -> None:
        """Give an operand the room of these axes, which have the same sizes."""
        at = self.operand(name)
        if at is None:
            raise Refused(f"{name} is no tensor of the device")
        before, rooms = parts_of(self.axes[at])[0], parts_of(axes)[0]
        if before == rooms:
            return
        if len(before) != len(rooms):
            raise Refused("an axis is of several sizes")
        program = padding.Moved(before, (0,) * len(before), rooms, shape_of(axes))
        self._replace(at, program, (), axes)

    def wider(self, result: int, axes: Axes, made: Axes) -> None:
        """Say that a result comes with the room of ``axes``; it is to be ``made``."""
        rooms, shape = parts_of(axes)[0], shape_of(made)
        program = padding.Moved(rooms, (0,) * len(rooms), parts_of(made)[0], shape)
        self._then[result] = Then(program, (), axes)

    def add_operand(self, name: str, program: WrittenOnce, part: Part, view: View) -> None:
        """Give an argument that was ``None`` a value: what a program makes of a part's size."""
        value = self._draft.program(program, [], [part.slot or 0], view.dtype, ((part,),))
        layout = Layout(view.dtype, (part.room,))
        self._operands.append(Operand(value, view, layout, NOWHERE))
        self.replace(name, TensorArg(len(self._operands) - 1))

    def joined(self, dim: int, parts: Sequence[int]) -> Axes:
        """Make the operands ``parts`` behind each other in place of the call; the result's axes."""
        (mark,) = {slots[dim] for slots in self.made}
        (shape,) = {part.view.shape for part in self.node.parts()}
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

    def instead(self, program: WrittenOnce, names: Sequence[str], slots: Sequence[int]) -> None:
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
            flat = self._with(self.node.outputs, self.node.writes)
            run_flat(self._draft, self.node, flat, results)
            return
        node = self.node
        outputs, writes = list(node.outputs), list(node.writes)
        if self._makes_anew():
            outputs += [Output(write.value, write.view, write.layout) for write in writes]
            writes = []
        after: list[Node] = []
        for number, slot in enumerate(node.slots):
            if slot is None:
                continue
            check_sizes(results[number], node.parts()[slot].view.shape)
            axes = results[number] or ()
            if slot < len(outputs):
                outputs[slot] = self._output(slot, outputs[slot], axes, after)
            else:
                at = slot - len(outputs)
                value = writes[at].value
                writes[at], self._draft.values[value] = self._write(writes[at], axes)
            if number in self._then:
                outputs[slot], last = self._followed(outputs[slot], self._then[number])
                after.insert(0, last)
        if self._instead is not None:
            made = self._replaced(outputs)
        else:
            made = self._with(tuple(outputs), tuple(writes))
        self._draft.nodes += [made, *after]

    def _with(self, outputs: tuple[Output, ...], writes: tuple[Write, ...]) -> Node:
        args, operands = tuple(self._args), tuple(self._operands)
        return replace(self.node, args=args, operands=operands, outputs=outputs, writes=writes)

    def _output(self, slot: int, recorded: Output, axes: Axes, after: list[Node]) -> Output:
        """What the call makes, and ``after`` it what puts it where it is to be written."""
        if slot >= len(self.node.outputs):
            write = self.node.writes[slot - len(self.node.outputs)]
            if self._lies_in(write):
                made, last = written(self._draft, self.node, write, axes)
                after.insert(0, last)
                return made
        made, self._draft.values[recorded.value] = output(recorded, axes)
        return made

    def _makes_anew(self) -> bool:
        """Whether the call makes arrays where it was recorded to write to some."""
        parts = any(
            self._is_in_place(write) and not self._whole[write.operand]
            for write in self.node.writes
        )
        return bool(self._is_apart or self._then or self._instead or parts)

    def _is_in_place(self, write: Write) -> bool:
        """Whether it goes where something was written before."""
        recorded = self.node.operands[write.operand]
        same = write.view == recorded.view and write.layout == recorded.layout
        return same and write.operand not in self._written_first()

    def _lies_in(self, write: Write) -> bool:
        """Whether there is more in the memory than it writes."""
        return self._is_in_place(write) and order_of(write.view, write.layout) is None

    def _write(self, write: Write, axes: Axes) -> tuple[Write, Axes]:
        operand = self._operands[write.operand]
        recorded = self.node.operands[write.operand]
        if not self._is_in_place(write):
            order = order_of(write.view, write.layout)
            if order is None:
                raise Refused("it resizes what it writes")
            view, layout, lying = laid_out(axes, order, write.layout.dtype)
            return replace(write, view=view, layout=layout), lying
        _agree(axes, self.axes[write.operand])
        lying = self._draft.values[recorded.value]
        return replace(write, view=operand.view, layout=operand.layout), lying

    def _followed(self, output: Output, then: Then) -> tuple[Output, Node]:
        """What the call gives, and the node that makes the recorded output of it."""
        draft, value = self._draft, self._draft.new()
        view, layout, lying = output.view, output.layout, draft.values[output.value]
        if then.axes is not None:
            view, layout, lying = laid_out(then.axes, range(len(then.axes)), layout.dtype)
        draft.values[value] = lying
        given = Operand(value, view, layout, 0)
        last = draft.node(then.program, [given], then.slots, output, self.node.source)
        return Output(value, view, layout), last


def _agree(one: Axes, other: Axes) -> None:
    if len(one) != len(other) or not all(map(same, one, other)):
        raise Refused("its result has other padding than what it is written to")
