"""The order in which operations are chunked: independent work side by side, not interleaved.

An optimizer over many tensors records its first operation for every tensor, then its second
for every tensor. Cut into chunks as recorded, every chunk would read and write every tensor.
Stretches without a dense anchor are therefore reordered by their connected components: all
that is done to one tensor stands together, and XLA fuses it into one pass over the tensor.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from fuse.trace.node import Node
from fuse.trace.operators import with_a

ANCHORS = with_a("product") | {
    "convolution",
    "convolution_backward",
    "convolution_overrideable",
    "convolution_backward_overrideable",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_fused_attention_overrideable_backward",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_thnn_fused_lstm_cell",
    "_thnn_fused_gru_cell",
}
"""Dense anchors: operations that do many arithmetic operations a byte. Work beside them is
fused into chunks around them."""


def is_anchor(node: Node) -> bool:
    """Whether the operation is a matrix product, a convolution, attention or a recurrent cell."""
    return node.target.partition(".")[0] in ANCHORS


def light_stretches(nodes: Sequence[Node]) -> list[tuple[int, int]]:
    """Maximal runs ``(start, stop)`` of operations that are no anchors."""
    runs = []
    start = 0
    for position, node in enumerate(nodes):
        if is_anchor(node):
            runs.append((start, position))
            start = position + 1
    runs.append((start, len(nodes)))
    return [(first, last) for first, last in runs if last > first]


def ordered(nodes: Sequence[Node], longest: int = 40) -> tuple[Node, ...]:
    """``nodes`` with every light stretch of more than ``longest`` operations grouped.

    Values are made once and named, so operations of different components may change places:
    no result depends on their order.
    """
    result = list(nodes)
    for start, stop in light_stretches(nodes):
        if stop - start > longest:
            result[start:stop] = _by_component(nodes[start:stop])
    return tuple(result)


def _by_component(nodes: Sequence[Node]) -> list[Node]:
    parent = list(range(len(nodes)))

    def find(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]  # path halving keeps trees flat
            index = parent[index]
        return index

    maker = {value: index for index, node in enumerate(nodes) for value in node.results()}
    for index, node in enumerate(nodes):
        for operand in node.operands:
            if operand.value in maker:
                first, second = sorted((find(index), find(maker[operand.value])))
                parent[second] = first
    groups: dict[int, list[Node]] = {}
    for index, node in enumerate(nodes):
        groups.setdefault(find(index), []).append(node)
    return [node for group in groups.values() for node in _with_copies_in_place(group)]


def _with_copies_in_place(nodes: Sequence[Node]) -> list[Node]:
    """Each copy into a buffer directly behind what makes its source.

    A compiled graph ends with such copies, in the order of its arguments: without this the
    components of an optimizer would differ in nothing but the order of theirs.
    """
    makers = {value: at for at, node in enumerate(nodes) for value in node.results()}
    read = {operand.value for node in nodes for operand in node.operands}
    behind: dict[int, list[Node]] = {}
    staying = []
    for at, node in enumerate(nodes):
        if _is_last_copy(node, makers, read):
            source = node.operands[-1].value
            behind.setdefault(makers[source], []).append(node)
        else:
            staying.append(at)
    return [node for at in staying for node in (nodes[at], *behind.get(at, ()))]


def _is_last_copy(node: Node, makers: Mapping[int, int], read: Container[int]) -> bool:
    """Whether it copies what these operations make into a buffer that none of them changes."""
    if not node.target.startswith("copy") or len(node.writes) != 1 or len(node.operands) != 2:
        return False
    buffer, source = node.operands
    untouched = buffer.value not in makers and node.writes[0].value not in read
    return untouched and source.value in makers
