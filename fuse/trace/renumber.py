"""Values renumbered locally, so that equal segments are equal as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuse.trace.node import Node


def renumber(nodes: Sequence[Node]) -> tuple[tuple[Node, ...], dict[int, int]]:
    """Number values by first appearance; returns the nodes and old number -> new number."""
    numbers: dict[int, int] = {}

    def number(value: int) -> int:
        return numbers.setdefault(value, len(numbers))

    renumbered = []
    for node in nodes:
        operands = tuple(
            replace(operand, value=number(operand.value), fresh=False) for operand in node.operands
        )
        outputs = tuple(replace(output, value=number(output.value)) for output in node.outputs)
        writes = tuple(replace(write, value=number(write.value)) for write in node.writes)
        renumbered.append(replace(node, operands=operands, outputs=outputs, writes=writes))
    return tuple(renumbered), numbers
