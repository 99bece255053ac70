"""Texts that name a node or a program, equal exactly where the programs are equal."""

from __future__ import annotations

from dataclasses import replace

from fuse.trace.node import Node


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


def program_text(nodes: tuple[Node, ...]) -> str:
    """A program's nodes, one a line, without sources: part of a compiled chunk's key."""
    return "\n".join(repr(replace(node, source="")) for node in nodes)
