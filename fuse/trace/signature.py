"""Texts that name a node or a program, equal exactly where the programs are equal."""

from __future__ import annotations

from collections.abc import Sequence

from fuse.trace.node import Arg, DroppedArg, DtypeArg, HostArg, Node, NumberArg, TensorArg
from fuse.trace.spec import Layout, View


def signature(node: Node) -> str:
    """The node without value numbers and source: what its rule's outcome depends on."""
    numbers: dict[int, int] = {}
    operands = []
    for operand in node.operands:
        number = numbers.setdefault(operand.value, len(numbers))
        operands.append((number, operand.view, operand.layout, operand.initialised))
    outputs = tuple((output.view, output.layout) for output in node.outputs)
    writes = tuple((write.operand, write.layout, write.view) for write in node.writes)
    places = tuple(place for place, _ in node.dynamic)
    return repr((node.op, node.target, node.args, operands, outputs, writes, node.slots, places))


def tokens(nodes: Sequence[Node]) -> list[int]:
    """One number a node, equal where the nodes are equal up to value numbers."""
    names: dict[str, int] = {}
    return [names.setdefault(signature(node), len(names)) for node in nodes]


def program_text(nodes: tuple[Node, ...]) -> str:
    """A program's nodes, one a line, without sources: equal exactly where the programs are."""
    return "\n".join(map(_line, nodes))


def _line(node: Node) -> str:
    made = [f"%{o.value}:{o.view}{_within(o.view, o.layout)}" for o in node.outputs]
    made += [f"%{w.value}:=${w.operand}:{w.view}{_within(w.view, w.layout)}" for w in node.writes]
    read = [
        f"%{o.value}:{o.view}{_within(o.view, o.layout)}#{o.place}"
        f"{'' if o.initialised else ' undefined'}{' fresh' if o.fresh else ''}"
        for o in node.operands
    ]
    call = node.op if node.op == node.target else f"{node.op}={node.target}"
    text = f"{', '.join(made)} = {call}({', '.join(map(_argument, node.args))})"
    text += f" of [{', '.join(read)}]"
    if node.slots != tuple(range(len(made))):
        text += f" slots {node.slots}"
    if node.dynamic:
        text += f" dynamic {node.dynamic}"
    if node.random is not None or node.blocks:
        text += f" random {node.random}, {node.blocks} blocks"
    return text


def _within(view: View, layout: Layout) -> str:
    """The buffer's layout, where the view does not say it already."""
    same = view.dtype == layout.dtype and view.shape == layout.shape
    return "" if same else f" in {layout}"


def _argument(arg: Arg) -> str:
    """An argument, exactly: texts are quoted, so that no two kinds read alike."""
    if isinstance(arg, NumberArg):
        return f"{arg.number!r}#{arg.place}"
    if isinstance(arg, HostArg):
        return f"{arg.number!r}:{arg.dtype}{' wrapped' if arg.wrapped else ''}#{arg.place}"
    if isinstance(arg, tuple):
        return f"[{', '.join(map(_argument, arg))}]"
    if isinstance(arg, (TensorArg, DtypeArg, DroppedArg)):
        return str(arg)
    return repr(arg)
