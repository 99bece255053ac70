"""Products with a dimension made a multiple of the lanes: for advice, never run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from fuse.trace.node import Node, Operand, Output
from fuse.trace.spec import Layout, View, contiguous_strides

PLAIN: Final = frozenset({"mm", "addmm", "bmm"})
LEAST: Final = 64
"""Dimensions under this are few rows or classes: no one would double those."""


def padded_product(node: Node, lanes: int) -> Iterator[tuple[int, Node]]:
    """For each size of a plain product that misses a multiple of ``lanes``: it, and the product
    with that size rounded up.
    """
    if node.target not in PLAIN:
        return
    shapes = [operand.view.shape for operand in node.operands]
    for size in sorted({size for shape in shapes for size in shape}):
        if size < LEAST or size % lanes == 0:
            continue
        product = resized_product(node, size, -(-size // lanes) * lanes)
        if product is not None:
            yield size, product


def rows(node: Node) -> int:
    """Rows of a plain product's first matrix, which are a layer's samples; 0 for other nodes."""
    if node.target not in ("mm", "addmm"):
        return 0
    return node.operands[-2].view.shape[0]


def resized_product(node: Node, size: int, wide: int) -> Node | None:
    """A plain product with dimensions of ``wide`` instead of ``size``.

    ``None`` for one that writes, has no such dimension, or sees less than whole buffers.
    """
    shapes = [operand.view.shape for operand in node.operands]
    if node.target not in PLAIN or node.writes or len(node.outputs) != 1:
        return None
    if not any(size in shape for shape in shapes):
        return None
    operands = [_operand(operand, size, wide) for operand in node.operands]
    kept = tuple(operand for operand in operands if operand is not None)
    if len(kept) != len(operands):
        return None
    return replace(node, operands=kept, outputs=(_output(node.outputs[0], size, wide),))


def _operand(operand: Operand, size: int, wide: int) -> Operand | None:
    view = operand.view
    if view.numel != operand.layout.numel or view.offset:
        return None
    order = sorted(range(len(view.shape)), key=lambda dim: -view.strides[dim])
    shape = tuple(wide if one == size else one for one in view.shape)
    lying = tuple(shape[dim] for dim in order)
    if tuple(view.strides[dim] for dim in order) != contiguous_strides(
        tuple(view.shape[dim] for dim in order)
    ):
        return None
    strides = dict(zip(order, contiguous_strides(lying), strict=True))
    made = View(view.dtype, shape, tuple(strides[dim] for dim in range(len(shape))))
    return replace(operand, view=made, layout=Layout(view.dtype, lying))


def _output(output: Output, size: int, wide: int) -> Output:
    shape = tuple(wide if one == size else one for one in output.view.shape)
    view = View(output.view.dtype, shape, contiguous_strides(shape))
    return replace(output, view=view, layout=Layout(view.dtype, shape))
