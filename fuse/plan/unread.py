"""Operands that an operation takes for their shape alone, so that nothing is kept for it.

A loss's gradient is told the loss's input, of which it needs the sizes: over 50,304 words and 8,192
places a copy in float32 of 1.6 GB, which a border in between would have written and read again.
Such an operand becomes one number of another operand, seen at its sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuse.trace.bind import named
from fuse.trace.node import Node, Operand, TensorArg
from fuse.trace.operators import operator


def without_unread(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The same nodes, each unread operand in the place of one that is read; same objects else."""
    return tuple(map(_without, nodes))


def _without(node: Node) -> Node:
    unread = operator(node.target).unread
    if not unread:
        return node
    given = named(node)
    at = {given[name].index for name in unread if isinstance(given.get(name), TensorArg)}
    fixed = [one for place, one in enumerate(node.operands) if place not in at]
    varying = {place for place, _ in node.dynamic}
    operands = tuple(
        _seen(one, fixed, varying) if place in at else one
        for place, one in enumerate(node.operands)
    )
    return node if operands == node.operands else replace(node, operands=operands)


def _seen(operand: Operand, others: Sequence[Operand], varying: set[int]) -> Operand:
    """``operand`` as one number of another one of its dtype; itself where there is none."""
    if operand.place in varying:
        return operand
    for other in others:
        view, layout = other.view, other.layout
        fits = view.dtype == layout.dtype == operand.view.dtype and layout.numel > 0
        if fits and other.initialised and other.place not in varying:
            flat = replace(view, shape=operand.view.shape, strides=(0,) * len(operand.view.shape))
            return replace(operand, value=other.value, view=flat, layout=layout, fresh=False)
    return operand
