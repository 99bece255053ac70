"""From a trace to a plan: a flat list of named passes, each verified.

Dead code goes, and what is computed twice is computed once; the little that changes from one such
trace to the next is set apart; the rest is cut into segments, at the borders of repeated blocks
where the trace is long; each segment becomes a chunk; and inputs that nothing needs afterwards are
donated to outputs of their size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fuse.plan.changing import set_apart, stretches
from fuse.plan.check import check_plan, undefined_values
from fuse.plan.early_output import early_output_position
from fuse.plan.liveness import bytes_alive, last_reads
from fuse.plan.order import is_anchor, light_stretches, ordered
from fuse.plan.plan import Plan, PlannedChunk
from fuse.plan.scalars import compact_scalars
from fuse.plan.segment import (
    EARLY_OUTPUT,
    EARLY_START,
    Outline,
    Segment,
    counted_operations,
    segments,
)
from fuse.plan.simplify import merged
from fuse.plan.speculation import early_start_position
from fuse.plan.unread import without_unread
from fuse.trace.borders import Borders
from fuse.trace.node import Leaf, Node, Trace
from fuse.trace.signature import tokens
from fuse.trace.verify import verify

SMALL = 1 << 16
"""Bytes of a leaf whose memory is not worth waiting for the end of the trace for."""
LARGE = 1 << 20
"""Bytes of a result from which on a dense anchor takes a compiler long that tiles it."""
CPU = Borders()
_LISTED = 5  # merged operations whose lines are named


@dataclass(slots=True)
class Draft:
    """A plan in the making; passes change it in place and append their decisions."""

    trace: Trace
    live: tuple[int, ...]
    donatable: tuple[int, ...]
    device: Borders
    changed: frozenset[int] = frozenset()
    elsewhere: bool = True
    nodes: tuple[Node, ...] = ()
    borders: tuple[int, ...] = ()
    donated: tuple[int, ...] = ()
    segments: tuple[Segment, ...] = ()
    chunks: tuple[PlannedChunk, ...] = ()
    decisions: list[str] = field(default_factory=list)


def plan(
    trace: Trace,
    live: tuple[int, ...],
    donatable: tuple[int, ...],
    device: Borders = CPU,
    changed: frozenset[int] = frozenset(),
    elsewhere: bool = True,
) -> Plan:
    """Plan ``trace`` so that the values ``live`` exist afterwards.

    ``donatable`` names the leaves whose arrays nobody else holds; ``device`` says what a chunk may
    be; ``changed`` are values made otherwise than in the last trace of this form
    (``changing.Forms``); chunks run ``elsewhere`` than on the cores that record them. Raises
    ``VerifyError`` where the trace or the result breaks an invariant.
    """
    draft = Draft(verify(trace), live, donatable, device, changed, elsewhere, trace.nodes)
    for _, step in PASSES:
        step(draft)
    return check_plan(
        Plan(trace, live, draft.donated, draft.chunks, tuple(draft.decisions)), donatable
    )


def prepared(trace: Trace, live: tuple[int, ...], device: Borders) -> tuple[Node, ...]:
    """The operations that the chunks of a plan consist of, before they are ordered and cut.

    Without what is dead and what is computed twice: a stored plan counts in these.
    """
    draft = Draft(trace, live, (), device, nodes=trace.nodes)
    forget_unread(draft)
    remove_dead(draft)
    merge_common(draft)
    return draft.nodes


def forget_unread(draft: Draft) -> None:
    """Let no operation wait for, or keep, an operand that it takes for its shape alone."""
    draft.nodes = without_unread(draft.nodes)


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


def merge_common(draft: Draft) -> None:
    """Take an earlier operation's results instead of computing the same again."""
    total = sum(node.recorded for node in draft.nodes)
    whole = counted_operations(total, _singles(draft.nodes)) <= draft.device.whole
    draft.nodes, pairs = merged(draft.nodes, draft.live, far=whole)
    for removed, kept in pairs[:_LISTED]:
        draft.decisions.append(
            f"common subexpression: {removed.op} at {removed.source or 'an unknown line'} is the "
            f"one at {kept.source or 'an unknown line'}"
        )
    if len(pairs) > _LISTED:
        draft.decisions.append(f"common subexpressions: {len(pairs) - _LISTED} more")


def _singles(nodes: Sequence[Node]) -> int:
    """How many operations make nothing but single numbers."""
    return sum(
        all(output.layout.numel == 1 for output in node.outputs)
        and all(write.layout.numel == 1 for write in node.writes)
        for node in nodes
    )


def _large(nodes: Sequence[Node]) -> int:
    """How many dense anchors make an array of ``LARGE`` bytes."""
    return sum(
        is_anchor(node)
        and (
            any(output.layout.nbytes >= LARGE for output in node.outputs)
            or any(write.layout.nbytes >= LARGE for write in node.writes)
        )
        for node in nodes
    )


def order(draft: Draft) -> None:
    """Put what belongs together side by side."""
    draft.nodes = ordered(draft.nodes)


def isolate(draft: Draft) -> None:
    """Set apart what changes from one trace of this form to the next."""
    draft.nodes, draft.borders = set_apart(draft.nodes, draft.changed)
    if draft.borders:
        apart = [node for node in draft.nodes if not draft.changed.isdisjoint(node.results())]
        draft.decisions.append(
            f"set apart: {len(apart)} operations whose shapes keep changing, the first is "
            f"{apart[0].op} at {apart[0].source or 'an unknown line'}"
        )


def segment(draft: Draft) -> None:
    """Choose where the operations are cut into chunks."""
    layouts = draft.trace.layouts()
    alive = bytes_alive(draft.nodes, draft.live, layouts)
    device = draft.device
    for start, stop in stretches(draft.borders, len(draft.nodes)):
        nodes = draft.nodes[start:stop]
        border, reason, singles = 0, EARLY_OUTPUT, _singles(nodes)
        more = (device.dense - 1) * _large(nodes) - sum(not node.recorded for node in nodes)
        counted = counted_operations(len(nodes), singles) + more
        if not draft.borders:
            border = early_output_position(nodes, draft.live, layouts, device.worth)
        if not border and draft.elsewhere and counted <= device.whole:
            border, reason = (
                early_start_position(nodes, alive[start:stop], layouts, device.worth),
                EARLY_START,
            )
        outline = Outline(
            tokens(nodes),
            alive[start:stop],
            light_stretches(nodes),
            device.whole,
            border,
            reason,
            singles,
            more,
        )
        draft.segments += tuple(
            replace(piece, start=start + piece.start, stop=start + piece.stop)
            for piece in segments(outline)
        )


def chunk(draft: Draft) -> None:
    """Make each segment a chunk: what it reads from before, and what is needed after it."""
    layouts = draft.trace.layouts()
    last = last_reads(draft.nodes, draft.live)
    # Of the whole trace: the first use, which is the one that says it, may have been dead.
    undefined = undefined_values(draft.trace.nodes)
    for piece in draft.segments:
        nodes = draft.nodes[piece.start : piece.stop]
        made = {value for node in nodes for value in node.results()}
        read = dict.fromkeys(operand.value for node in nodes for operand in node.operands)
        inputs = tuple(
            Leaf(value, layouts[value])
            for value in read
            if value not in made and value not in undefined
        )
        outputs = tuple(value for value in sorted(made) if last.get(value, -1) >= piece.stop)
        compacted, slots = compact_scalars(nodes)
        draft.chunks += (PlannedChunk(compacted, inputs, outputs, (), slots),)
        draft.decisions.append(f"chunk {len(draft.chunks) - 1}: {piece.reason}")


def donate(draft: Draft) -> None:
    """Let a chunk reuse inputs that nothing reads after it for outputs of their size.

    Inputs are leaves that nobody else holds, and results of earlier chunks that are not live. A
    chunk that consumes no leaf may run before the trace has ended, so dense ones but the last
    leave small leaves (a batch norm's statistics) alone.
    """
    layouts = draft.trace.layouts()
    leaves = {leaf.value for leaf in draft.trace.leaves}
    final: dict[int, int] = {}
    for index, piece in enumerate(draft.chunks):
        final |= dict.fromkeys((leaf.value for leaf in piece.inputs), index)
    chunks, consumed = [], []
    for index, piece in enumerate(draft.chunks):
        room = Counter(layouts[value] for value in piece.outputs)
        positions = []
        early = index < len(draft.chunks) - 1 and any(map(is_anchor, piece.nodes))
        for position, leaf in enumerate(piece.inputs):
            free = (
                leaf.value in draft.donatable
                if leaf.value in leaves
                else (leaf.value not in draft.live)
            )
            if not free or final[leaf.value] != index:
                continue
            if early and leaf.value in leaves and leaf.layout.nbytes <= SMALL:
                continue
            if room[leaf.layout] > 0:
                room[leaf.layout] -= 1
                positions.append(position)
                consumed += [leaf.value] if leaf.value in leaves else []
        chunks.append(replace(piece, donated=tuple(positions)))
    draft.chunks = tuple(chunks)
    draft.donated = tuple(sorted(consumed))
    reused = sum(len(piece.donated) for piece in chunks)
    if reused:
        draft.decisions.append(
            f"donation: {reused} inputs reused for outputs of their size, {len(consumed)} of them "
            "from before the trace"
        )


PASSES: tuple[tuple[str, Callable[[Draft], None]], ...] = (
    ("forget what is unread", forget_unread),
    ("remove dead code", remove_dead),
    ("merge common subexpressions", merge_common),
    ("order", order),
    ("isolate", isolate),
    ("segment", segment),
    ("chunk", chunk),
    ("donate", donate),
)
