"""Products that are added up, or have one right operand, found to be done as one.

The gradient of a weight that a program uses several times (a recurrent cell at every time step, a
layer that two places share) is a sum of products: a1 @ b1 + a2 @ b2 + ... It is one product of
the operands laid one after the other along the dimension that is contracted:
[a1 a2 ...] @ [b1; b2; ...]. That reads and writes the sum once, and small products are slow.

What a recurrent cell makes of its inputs, x1 @ w, x2 @ w, ..., is [x1; x2; ...] @ w.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fuse.backends.base import Chunk
from fuse.trace.node import Node, NumberArg, TensorArg
from fuse.trace.spec import ITEMSIZE, View

LEAST: Final = 3
"""Products that are worth laying their operands together."""
LARGEST: Final = 4 << 20
"""Bytes of all operands, which live until the last is there; larger products gain nothing."""
DTYPES: Final = ("float32", "float64")  # a sum of half precision would be rounded less often


@dataclass(frozen=True, slots=True)
class Sum:
    """Products and the additions of what they make.

    Attributes:
        nodes: places in the chunk of all of them, ascending.
        products: places of the products, in the order in which they are added.
        result: the value of the last addition.
    """

    nodes: tuple[int, ...]
    products: tuple[int, ...]
    result: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Products, at the places ``nodes``, of inputs with one and the same right operand."""

    nodes: tuple[int, ...]


def joined_products(chunk: Chunk) -> tuple[list[Sum], list[Batch]]:
    """The chunk's sums, and those of its batches that share no product with them."""
    added = sums(chunk)
    apart = {place for one in added for place in one.nodes}
    return added, [one for one in batches(chunk) if apart.isdisjoint(one.nodes)]


def batches(chunk: Chunk) -> list[Batch]:
    """The products of several of the chunk's inputs, or parts of them, with one other input."""
    inputs = {leaf.value for leaf in chunk.inputs}
    equal: dict[tuple[int, View], list[int]] = defaultdict(list)
    for place, node in enumerate(chunk.nodes):
        if _is_product(node) and all(operand.value in inputs for operand in node.operands):
            right = node.operands[1]
            if node.slot_of(right.place) is None:
                equal[right.value, right.view].append(place)
    lists = (tuple(places) for places in equal.values() if len(places) >= LEAST)
    return [Batch(places) for places in lists if _is_small(chunk, places)]


def sums(chunk: Chunk) -> list[Sum]:
    """The sums of products in ``chunk`` of which nothing but the whole sum is needed."""
    readers: dict[int, set[int]] = defaultdict(set)
    for place, node in enumerate(chunk.nodes):
        for operand in node.operands:
            readers[operand.value].add(place)
    needed, found = set(chunk.outputs), dict[int, Sum]()
    for place, node in enumerate(chunk.nodes):
        if _is_product(node):
            result = next(node.results())
            found[result] = Sum((place,), (place,), result)
        elif _is_addition(node):
            parts = [operand.value for operand in node.operands[:2]]
            alone = [readers[part] == {place} and part not in needed for part in parts]
            if parts[0] != parts[1] and all(alone) and _are_alike(chunk, found, parts):
                one, other = (found.pop(part) for part in parts)
                places = tuple(sorted((*one.nodes, *other.nodes, place)))
                result = next(node.results())
                found[result] = Sum(places, (*one.products, *other.products), result)
    long = (one for one in found.values() if len(one.products) >= LEAST)
    return [one for one in long if _is_small(chunk, one.products)]


def _is_product(node: Node) -> bool:
    return (
        node.target == "mm"
        and len(node.outputs) == 1
        and not node.writes
        and node.outputs[0].view.dtype in DTYPES
        and len(node.operands) == 2
        and node.outputs[0].view.covers(node.outputs[0].layout)
    )


def _is_addition(node: Node) -> bool:
    """Of two tensors of one shape and dtype, of which nothing else is read or written."""
    if node.target != "add.Tensor" or node.dynamic or len(node.args) < 3:
        return False
    first, second, alpha = node.args[:3]
    made = [output.view for output in node.outputs] + [write.view for write in node.writes]
    return (
        (first, second) == (TensorArg(0), TensorArg(1))
        and isinstance(alpha, NumberArg)
        and alpha.number == 1
        and len(made) == 1
        and all(operand.view == made[0] for operand in node.operands)
        and {operand.value for operand in node.operands[2:]} <= {node.operands[0].value}
        and all(operand.view.covers(operand.layout) for operand in node.operands)
    )


def _are_alike(chunk: Chunk, found: dict[int, Sum], parts: Sequence[int]) -> bool:
    """Whether ``parts`` are sums of products that lie in memory alike, element by element.

    Additions may see [6, 8] and [8, 6] as [48].
    """
    if not all(part in found for part in parts):
        return False
    outputs = [chunk.nodes[found[part].products[0]].outputs[0] for part in parts]
    return len({(output.view, output.layout) for output in outputs}) == 1


def _is_small(chunk: Chunk, places: Sequence[int]) -> bool:
    operands = [operand for place in places for operand in chunk.nodes[place].operands]
    return sum(one.view.numel * ITEMSIZE[one.view.dtype] for one in operands) <= LARGEST
