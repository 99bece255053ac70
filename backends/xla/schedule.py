"""The schedule: the order in which a chunk is emitted where some of its nodes are done as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from fuse.backends.base import Chunk
from fuse.backends.xla.calls import Call
from fuse.backends.xla.horizontal_packing import Group
from fuse.backends.xla.products import Batch, Sum
from fuse.errors import VerifyError

Step = int | Group | Sum | Batch | Call
"""The place of a node that is done alone, or nodes that are done as one."""


def ordered(chunk: Chunk, merged: Sequence[Group | Sum | Batch | Call]) -> tuple[Step, ...]:
    """Nodes, by place, and merged ones in an order in which each follows what it reads.

    There is one: the nodes of a group are equally far from the chunk's end, of a sum nothing but
    the last value is read, a batch reads inputs only, and nothing that a chain reads depends on
    it. It is the nearest to the chunk's own, in which merged nodes stand where the last of them
    does.

    Raises:
        VerifyError: there is none.
    """
    of = {place: one for one in merged for place in one.nodes}
    last = [of[place].nodes[-1] if place in of else place for place in range(len(chunk.nodes))]
    makers: dict[int, int] = {}
    for place, node in enumerate(chunk.nodes):
        makers |= dict.fromkeys(node.results(), last[place])
    needed: dict[int, set[int]] = defaultdict(set)
    for place, node in enumerate(chunk.nodes):
        read = {makers[one.value] for one in node.operands if one.value in makers}
        needed[last[place]] |= read - (
            {last[place]} if isinstance(of.get(place), Sum | Call) else set()
        )
    readers: dict[int, list[int]] = defaultdict(list)
    for step, before in needed.items():
        for maker in before:
            readers[maker].append(step)
    ready = [step for step, before in needed.items() if not before]
    heapify(ready)
    order: list[Step] = []
    while ready:
        step = heappop(ready)
        order.append(of.get(step, step))
        for reader in readers[step]:
            needed[reader].discard(step)
            if not needed[reader]:
                heappush(ready, reader)
    if len(order) != len(needed):
        raise VerifyError("operations that are to be done as one need each other's results")
    return tuple(order)
