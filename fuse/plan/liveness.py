"""Which values are alive where in a trace, and how many bytes they take."""

from __future__ import annotations

from collections.abc import Sequence

from fuse.trace.node import Node
from fuse.trace.spec import Layout


def last_reads(nodes: Sequence[Node], live: Sequence[int]) -> dict[int, int]:
    """Value -> position of the last node that reads it; ``len(nodes)`` for a live value."""
    last: dict[int, int] = {}
    for position, node in enumerate(nodes):
        for operand in node.operands:
            last[operand.value] = position
    return last | dict.fromkeys(live, len(nodes))


def bytes_alive(
    nodes: Sequence[Node], live: Sequence[int], layouts: dict[int, Layout]
) -> list[int]:
    """Bytes of values made in the trace that are alive just after each node."""
    last = last_reads(nodes, live)
    ends: dict[int, int] = {}
    alive, result = 0, []
    for position, node in enumerate(nodes):
        for value in node.results():
            until = last.get(value, -1)
            if until > position:
                size = layouts[value].nbytes
                alive += size
                ends[until] = ends.get(until, 0) + size
        alive -= ends.pop(position, 0)
        result.append(alive)
    return result
