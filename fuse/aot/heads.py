"""Chunks whose attention has fewer and wider heads: for advice, never run.

Heads lie side by side in a row of a projection, so the model with wider ones reads the same
memory through other views, and all that is no attention stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from fuse.backends.base import Chunk
from fuse.trace.functional import find_overload
from fuse.trace.node import Leaf, Node, Operand, TensorArg
from fuse.trace.spec import Layout, View, contiguous_strides

ATTENTION: Final = frozenset(
    {
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_fused_attention_overrideable",
    }
)
"""Forward; a gradient's name ends in ``_backward``."""
SPLIT: Final = frozenset({"query", "key", "value", "out", "grad_out"})
"""Arguments ``[*, heads, rows, width]``."""


class CannotJoinError(Exception):
    """Heads that are not beside each other, an odd number of them, or a bias for each."""


def is_attention(node: Node) -> bool:
    """Whether a node is attention or its gradient."""
    return node.target.partition(".")[0].removesuffix("_backward") in ATTENTION


def query(node: Node) -> View:
    """The view ``[*, heads, rows, width]`` of the queries of an attention or its gradient."""
    return next(operand.view for name, operand in _named(node) if name == "query")


class Joined:
    """Every ``count`` heads made one; raises ``CannotJoinError`` where that is no such model."""

    def __init__(self, chunks: Iterable[Chunk], count: int) -> None:
        self._count = count
        self._layouts: dict[Layout, Layout] = {}
        self._nodes: dict[Node, Node] = {}
        for chunk in chunks:
            for node in filter(is_attention, chunk.nodes):
                self._nodes[node] = self._node(node)

    def __call__(self, chunk: Chunk) -> Chunk:
        """``chunk`` with wider heads; itself where that changes nothing."""
        changed = [(node, self._nodes.get(node, node)) for node in chunk.nodes]
        layouts: dict[int, Layout] = {
            leaf.value: self._layouts[leaf.layout]
            for leaf in chunk.inputs
            if leaf.layout in self._layouts
        }
        for old, new in changed:
            if new is not old:
                layouts |= {one.value: one.layout for one in new.operands}
                layouts |= {one.value: one.layout for one in new.outputs}
        nodes = tuple(_laid(new, layouts) for _, new in changed)
        inputs = tuple(
            Leaf(leaf.value, layouts.get(leaf.value, leaf.layout)) for leaf in chunk.inputs
        )
        return replace(chunk, nodes=nodes, inputs=inputs)

    def _node(self, node: Node) -> Node:
        operands = list(node.operands)
        for name, operand in _named(node):
            at = node.operands.index(operand)
            if name in SPLIT:
                view, layout = self._wide(operand.view, operand.layout)
                operands[at] = replace(operand, view=view, layout=layout)
            elif name == "logsumexp":
                view, layout = self._sums(operand.view)
                operands[at] = replace(operand, view=view, layout=layout)
            elif name in ("attn_bias", "attn_mask") and _heads_apart(operand.view):
                raise CannotJoinError("a bias for each head")
        outputs = []
        for output in node.outputs:
            shape, view, layout = output.view.shape, output.view, output.layout
            if len(shape) == len(query(node).shape):
                view, layout = self._wide(view, layout)
            elif len(shape) == len(query(node).shape) - 1:
                view, layout = self._sums(view)
            outputs.append(replace(output, view=view, layout=layout))
        return replace(node, operands=tuple(operands), outputs=tuple(outputs))

    def _wide(self, view: View, layout: Layout) -> tuple[View, Layout]:
        """A view of heads side by side in a row, or one after the other in memory of their own."""
        *lead, heads, rows, width = view.shape
        if heads % self._count:
            raise CannotJoinError(f"{heads} heads")
        shape = (*lead, heads // self._count, rows, width * self._count)
        if view.strides[-3] == width * view.strides[-1]:
            *before, apart, down, along = view.strides
            strides = (*before, apart * self._count, down, along)
        elif view.strides == contiguous_strides(view.shape):
            strides = contiguous_strides(shape)
        else:
            raise CannotJoinError("heads that are not beside each other")
        made = replace(view, shape=shape, strides=strides)
        order = sorted(range(len(shape)), key=lambda dim: -view.strides[dim])
        if layout.shape == tuple(view.shape[dim] for dim in order):  # memory of these heads alone
            old, layout = layout, replace(layout, shape=tuple(shape[dim] for dim in order))
            self._layouts[old] = layout
        return made, layout

    def _sums(self, view: View) -> tuple[View, Layout]:
        """Logarithms of sums ``[*, heads, rows]``, one for each head and row."""
        *lead, heads, rows = view.shape
        shape = (*lead, heads // self._count, rows)
        return View(view.dtype, shape, contiguous_strides(shape)), Layout(view.dtype, shape)


def _named(node: Node) -> Iterator[tuple[str, Operand]]:
    """The operands of a node by the names of their arguments."""
    overload = find_overload(node.target)
    assert overload is not None, node.target
    for argument, value in zip(overload._schema.arguments, node.args, strict=True):
        if isinstance(value, TensorArg):
            yield argument.name, node.operands[value.index]


def _heads_apart(bias: View) -> bool:
    return len(bias.shape) > 2 and bias.shape[-3] > 1


def _laid(node: Node, layouts: Mapping[int, Layout]) -> Node:
    """``node`` over memory of other shapes with as many elements."""
    return replace(
        node,
        operands=tuple(
            replace(one, layout=layouts.get(one.value, one.layout)) for one in node.operands
        ),
        outputs=tuple(
            replace(one, layout=layouts.get(one.value, one.layout)) for one in node.outputs
        ),
    )
