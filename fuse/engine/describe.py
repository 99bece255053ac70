"""From what the native core says of a call to a ``Node``.

The core describes a call in plain tuples (``call_description.cpp`` says which); this file gives
them names, finds the functional target and says where each of its results goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuse.backends.functions import is_function, target_of
from fuse.engine.bridge import RawCall, RawOperand, RawResult, RawWrite
from fuse.trace.functional import functional_name
from fuse.trace.node import (
    Arg,
    DroppedArg,
    DtypeArg,
    HostArg,
    Node,
    NumberArg,
    Operand,
    Output,
    TensorArg,
    Write,
)
from fuse.trace.random_blocks import blocks, is_random
from fuse.trace.source import user_line
from fuse.trace.spec import Layout, View

_ARGUMENT, _NEW, _UNDEFINED, _LIST, _CONSTANT = range(5)  # trie_node.h, Result::Kind


def argument(raw: Any) -> Any:
    """One described argument as an argument of a ``Node``."""
    if isinstance(raw, list):
        return tuple(argument(item) for item in raw)
    if not isinstance(raw, tuple) or not raw or not isinstance(raw[0], str):
        return raw
    tag, *rest = raw
    if tag == "T":
        return TensorArg(rest[0])
    if tag == "S":
        return NumberArg(rest[0], rest[1])
    if tag == "H":
        return HostArg(*rest)
    if tag == "D":
        return DtypeArg(rest[0])
    return DroppedArg()


def _operand(raw: RawOperand) -> Operand:
    value, dtype, shape, strides, offset, place, fresh, initialised, layout = raw
    return Operand(
        value, View(dtype, shape, strides, offset), Layout(*layout), place, fresh, initialised
    )


def _write(raw: RawWrite, operands: tuple[Operand, ...]) -> Write:
    operand, value, layout, resized = raw
    view = operands[operand].view
    if resized is not None:
        shape, strides = resized
        view = View(view.dtype, shape, strides, view.offset)
    return Write(operand, value, Layout(*layout), view)


def _slots(
    raw_results: list[RawResult],
    args: tuple[Arg, ...],
    outputs: int,
    writes: tuple[Write, ...],
) -> tuple[int | None, ...]:
    slots: list[int | None] = []
    taken: set[int] = set()
    by_operand = {write.operand: index for index, write in enumerate(writes)}
    for kind, index, count in raw_results:
        if kind == _ARGUMENT:
            for operand in _operand_numbers(args[index]):
                slots.append(outputs + by_operand[operand])
                taken.add(by_operand[operand])
        elif kind in (_UNDEFINED, _CONSTANT):
            slots.append(None)
        else:
            slots += range(index, index + count)
    # Writes that no result names (running statistics, foreach lists) come last, in order.
    slots += [outputs + index for index in range(len(writes)) if index not in taken]
    return tuple(slots)


def _operand_numbers(arg: Arg) -> list[int]:
    if isinstance(arg, TensorArg):
        return [arg.index]
    assert isinstance(arg, tuple)
    return [number for item in arg for number in _operand_numbers(item)]


def call_key(call: RawCall) -> str:
    """A call without its value numbers: equal for calls that differ in these only."""
    numbers: dict[int, int] = {}
    read = [(numbers.setdefault(raw[0], len(numbers)), *raw[1:]) for raw in call.operands]
    made = [raw[1:] for raw in call.tensors]
    written = [(raw[0], *raw[2:]) for raw in call.writes]
    return repr((call.name, call.args, read, made, written, call.results))


def renumbered(known: Node, call: RawCall) -> Node:
    """The node of a call whose ``call_key`` is that of ``known``, with the call's own values."""
    return Node(
        op=known.op,
        target=known.target,
        args=known.args,
        operands=tuple(
            Operand(raw[0], one.view, one.layout, one.place, one.fresh, one.initialised)
            for one, raw in zip(known.operands, call.operands, strict=True)
        ),
        outputs=tuple(
            Output(raw[0], one.view, one.layout)
            for one, raw in zip(known.outputs, call.tensors, strict=True)
        ),
        writes=tuple(
            Write(one.operand, raw[1], one.layout, one.view)
            for one, raw in zip(known.writes, call.writes, strict=True)
        ),
        slots=known.slots,
        blocks=known.blocks,
        source=user_line(),
    )


def build_node(call: RawCall, has_rule: Callable[[str], bool]) -> Node:
    """Return the node of a call, with the user's source line."""
    arguments = tuple(argument(raw) for raw in call.args)
    outputs = tuple(
        Output(value, View(dtype, shape, strides), Layout(*layout))
        for value, dtype, shape, strides, layout in call.tensors
    )
    target = functional_name(call.name, has_rule)
    known = tuple(_operand(raw) for raw in call.operands)
    written = tuple(_write(raw, known) for raw in call.writes)
    drawn = 0
    if is_random(target):
        views = [output.view for output in outputs] + [operand.view for operand in known]
        drawn = max(blocks(target, max(view.numel for view in views)), 1)
    node = Node(
        op=call.name,
        target=target,
        args=arguments,
        operands=known,
        outputs=outputs,
        writes=written,
        slots=_slots(call.results, arguments, len(outputs), written),
        blocks=drawn,
        source=user_line(),
    )
    return replace(node, target=target_of(node)) if is_function(call.name) else node
