"""From a trace to a plan: a flat list of named passes, each verified.

A first planner: dead code goes, the rest becomes one chunk, and inputs that nobody else
holds are donated to outputs of their size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fuse.errors import VerifyError
from fuse.plan.plan import Plan, PlannedChunk
from fuse.trace.node import Leaf, Node, Trace
from fuse.trace.verify import verify


@dataclass(slots=True)
class Draft:
    """A plan in the making; passes change it in place and append their decisions."""

    trace: Trace
    live: tuple[int, ...]
    donatable: tuple[int, ...]
    nodes: tuple[Node, ...] = ()
    donated: tuple[int, ...] = ()
    chunks: tuple[PlannedChunk, ...] = ()
    decisions: list[str] = field(default_factory=list)


def plan(trace: Trace, live: tuple[int, ...], donatable: tuple[int, ...]) -> Plan:
    """Plan ``trace`` so that the values ``live`` exist afterwards.

    ``donatable`` names the leaves whose arrays nobody else holds. Raises ``VerifyError``
    where the trace or the result breaks an invariant.
    """
    draft = Draft(verify(trace), live, donatable, nodes=trace.nodes)
    for _, step in PASSES:
        step(draft)
    return Plan(trace, live, draft.donated, draft.chunks, tuple(draft.decisions))


def remove_dead(draft: Draft) -> None:
    """Drop nodes none of whose results is read later or live."""
    wanted = set(draft.live)
    kept: list[Node] = []
    for node in reversed(draft.nodes):
        if wanted.isdisjoint(node.results()):
            continue
        wanted.update(operand.value for operand in node.operands)
        kept.append(node)
    removed = len(draft.nodes) - len(kept)
    draft.nodes = tuple(reversed(kept))
    if removed:
        draft.decisions.append(f"dead code: {removed} operations removed, nothing reads them")


def donate(draft: Draft) -> None:
    """Pair leaves that nobody else holds with outputs of the same dtype and shape."""
    layouts = draft.trace.layouts()
    read = {operand.value for node in draft.nodes for operand in node.operands}
    room = Counter(layouts[value] for value in draft.live)
    donated = []
    for value in draft.donatable:
        layout = layouts[value]
        if value not in read:
            continue  # dropped by dead code: its array is simply let go
        if room[layout] > 0:
            room[layout] -= 1
            donated.append(value)
        else:
            draft.decisions.append(f"donation: %{value} refused, no output is {layout}")
    draft.donated = tuple(donated)
    if donated:
        draft.decisions.append(f"donation: {len(donated)} inputs reused for outputs of their size")


def one_chunk(draft: Draft) -> None:
    """The whole trace as one executable."""
    inputs = leaves_of(draft.nodes, draft.trace)
    position = {leaf.value: index for index, leaf in enumerate(inputs)}
    nodes, slots = compact_scalars(draft.nodes)
    donated = tuple(position[value] for value in draft.donated)
    draft.chunks = (PlannedChunk(nodes, inputs, draft.live, donated, slots),)
    draft.decisions.append(f"chunk: {len(nodes)} operations together, the whole trace")


def leaves_of(nodes: tuple[Node, ...], trace: Trace) -> tuple[Leaf, ...]:
    """The trace's leaves that ``nodes`` read, in the trace's order."""
    read = {operand.value for node in nodes for operand in node.operands}
    return tuple(leaf for leaf in trace.leaves if leaf.value in read)


def compact_scalars(nodes: tuple[Node, ...]) -> tuple[tuple[Node, ...], tuple[int, ...]]:
    """Renumber the slots of the packed array to those the nodes use; also return which."""
    used: list[int] = []
    renumbered = []
    for node in nodes:
        dynamic = []
        for place, slot in node.dynamic:
            dynamic.append((place, len(used)))
            used.append(slot)
        random = node.random
        if random is not None:
            used += [random, random + 1]
            random = len(used) - 2
        renumbered.append(replace(node, dynamic=tuple(dynamic), random=random))
    return tuple(renumbered), tuple(used)


def check(draft: Draft) -> None:
    """Every live value is made by exactly one chunk, from inputs that exist by then."""
    known: set[int] = {leaf.value for leaf in draft.trace.leaves}
    made: list[int] = []
    for chunk in draft.chunks:
        missing = [leaf.value for leaf in chunk.inputs if leaf.value not in known]
        if missing:
            raise VerifyError(f"a chunk reads {missing} before they are made")
        results = {value for node in chunk.nodes for value in node.results()}
        lost = [value for value in chunk.outputs if value not in results]
        if lost:
            raise VerifyError(f"a chunk returns {lost}, which its operations do not make")
        known.update(chunk.outputs)
        made += chunk.outputs
    absent = [value for value in draft.live if made.count(value) != 1]
    if absent:
        raise VerifyError(f"live values {absent} are not made exactly once")


PASSES: tuple[tuple[str, Callable[[Draft], None]], ...] = (
    ("remove dead code", remove_dead),
    ("donate", donate),
    ("one chunk", one_chunk),
    ("verify", check),
)

