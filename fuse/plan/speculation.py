"""Speculation: what of a plan can run before its trace has been recorded to the end.

The first chunks of a known stream run while the program still records the rest of it: the forward
pass while PyTorch goes through the backward pass, one layer while it is in the next. Inference
that ends in a host read has nothing else that could run meanwhile, so what its recording takes,
Python included, is added to every call. Where it is one piece of heavy work it is therefore cut
once, early and where little is alive; but not where chunks run on the cores that record: there
recording takes from the first chunk what it saves, and the two chunks are less than one. On XLA's
CPU platform inference of an encoder takes 0.94 of the time uncut, of a GPT and of a residual net
0.97 (two cores, medians, turn by turn).
"""

from __future__ import annotations

from collections.abc import Sequence

from fuse.plan.order import is_anchor
from fuse.plan.plan import Plan
from fuse.trace.node import Node
from fuse.trace.spec import Layout

FEWEST = 16
"""Operations after the border at least: some 0.2 ms of a model's Python."""
WORTH_WAITING = 8 << 20
"""Bytes made in the trace that take longer than recording it, at least: an encoder of four layers
on 512 tokens makes 40 MB and is recorded in 0.7 ms."""
ANCHORS = 4
"""Dense anchors after the border at least: light work is fused across it, which is worth more."""
WORTH_STARTING = 12
"""Calls still to be recorded when a chunk is started early, which costs some 20 us."""


def early_start_position(
    nodes: Sequence[Node], alive: Sequence[int], layouts: dict[int, Layout], worth: int
) -> int:
    """The position with the least bytes ``alive`` in the second quarter; 0 for no border.

    What makes ``worth`` bytes is worth a call of its own.
    """
    made = sum(layouts[value].nbytes for node in nodes for value in node.results())
    window = range(len(nodes) // 4, len(nodes) // 2)
    if made < max(WORTH_WAITING, worth) or not window or len(nodes) - window[-1] < FEWEST:
        return 0
    border = min(window, key=lambda position: (alive[position], position)) + 1
    before, behind = (sum(map(is_anchor, part)) for part in (nodes[:border], nodes[border:]))
    return border if before and behind >= ANCHORS else 0


def starting_points(plan: Plan) -> tuple[tuple[int, int], ...]:
    """Pairs of a number of calls recorded, and how many chunks have all that they need then.

    A chunk that consumes a leaf waits for the end, and so do those after it: until then the
    trace may turn out to need what the leaf held.
    """
    made: dict[int, int] = {}
    total = 0
    for node in plan.trace.nodes:
        total += node.recorded
        made |= dict.fromkeys(node.results(), total)
    leaves = {leaf.value for leaf in plan.trace.leaves}
    points: dict[int, int] = {}
    calls = 0
    for number, chunk in enumerate(plan.chunks):
        if not leaves.isdisjoint(chunk.inputs[at].value for at in chunk.donated):
            break
        calls = max(calls, *(made[value] for node in chunk.nodes for value in node.results()))
        if total - calls < WORTH_STARTING:
            break
        points[calls] = number + 1
    return tuple(points.items())
