"""Common subexpressions: an operation equal to an earlier one takes that one's results.

A program that builds the same mask or constant twice, or computes the same term in two
places, is merged. Only values are: what draws random numbers, writes to a buffer or takes
a number that varies is never equal to anything.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from fuse.plan.order import is_anchor
from fuse.trace.node import Node


def merged(
    nodes: Sequence[Node], live: Sequence[int], far: bool
) -> tuple[tuple[Node, ...], tuple[tuple[Node, Node], ...]]:
    """The nodes without those equal to an earlier one, and pairs ``(removed, kept)``.

    A node that makes a live value stays: that value must be made. Unless ``far``, nothing is
    merged across a dense anchor: the value would have to be kept until then, and the first
    of several equal layers would not be like the others any more.
    """
    wanted = set(live)
    instead: dict[int, int] = {}
    seen: dict[tuple[Hashable, ...], Node] = {}
    kept: list[Node] = []
    pairs: list[tuple[Node, Node]] = []
    for recorded in nodes:
        node = _reading(recorded, instead)
        if not far and is_anchor(node):
            seen.clear()
        if node.writes or node.dynamic or node.random is not None or node.blocks:
            kept.append(node)
            continue
        first = seen.setdefault(_meaning(node), node)
        if first is node or not wanted.isdisjoint(node.results()):
            kept.append(node)
            continue
        instead |= zip(node.results(), first.results(), strict=True)
        pairs.append((node, first))
    return tuple(kept), tuple(pairs)


def _reading(node: Node, instead: dict[int, int]) -> Node:
    """The node with the values it reads replaced; the same object where none is."""
    if instead.keys().isdisjoint(operand.value for operand in node.operands):
        return node
    return replace(
        node,
        operands=tuple(
            replace(operand, value=instead.get(operand.value, operand.value))
            for operand in node.operands
        ),
    )


def _meaning(node: Node) -> tuple[Hashable, ...]:
    """Equal for two nodes that compute the same from the same values."""
    return (
        node.op,
        node.target,
        # As text: 1, 1.0 and True are equal to Python, and so are 0.0 and -0.0.
        repr(node.args),
        tuple((one.value, one.view, one.layout, one.initialised) for one in node.operands),
        tuple((one.view, one.layout) for one in node.outputs),
        node.slots,
    )
