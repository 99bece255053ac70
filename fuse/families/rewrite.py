"""A trace at the sizes of buckets: the same calls on longer arrays, padding made neutral.

``fuse.families.rules`` says what an operator reads along, and which axes its results have. An
operator without a rule stands in the way of the whole trace where a size of its call moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fuse.families.call import Call, Rule
from fuse.families.draft import Draft, Padded
from fuse.families.parts import Refused, marked, moving
from fuse.families.sizes import Marks, Slots
from fuse.trace.functional import qualified_name
from fuse.trace.node import Node, Trace


def padded(trace: Trace, marks: Marks, rules: Callable[[str], Rule | None]) -> Padded:
    """The trace at the sizes of buckets.

    Raises ``Refused`` where a result might depend on padding.
    """
    draft = Draft(trace, marks)
    for at, node in enumerate(trace.nodes):
        _add(draft, rules(node.target), at)
    return draft.result()


def _add(draft: Draft, rule: Rule | None, at: int) -> None:
    node, operands = draft.trace.nodes[at], draft.marks.operands[at]
    made = (*draft.marks.outputs[at], *draft.marks.writes[at])
    for pair in zip(node.operands, operands, strict=True):
        draft.begin(*pair)
    moves = any(mark is not None for slots in (*operands, *made) for mark in slots)
    if not moves and not any(moving(draft.values[one.value]) for one in node.operands):
        for part in node.parts():
            draft.values[part.value] = tuple(marked(size, None) for size in part.layout.shape)
        draft.nodes.append(node)
        return
    try:
        if rule is None:
            raise Refused("no rule says what padding does to it")
        _run(draft, node, rule, operands, made)
    except Refused as refused:
        where = f" at {node.source}" if node.source else ""
        raise Refused(f"{qualified_name(node.op)}{where}: {refused}") from None


def _run(
    draft: Draft, node: Node, rule: Rule, operands: Sequence[Slots], made: Sequence[Slots]
) -> None:
    """Run a rule; once more where padding in the midst of a dimension is what stands in its way."""
    before = draft.state()
    try:
        return Call(draft, node, operands, made).run(rule)
    except Refused as refused:
        draft.restore(before)
        before, why = draft.state(), refused
    try:
        Call(draft, node, operands, made, compact=True).run(rule)
    except Refused:
        draft.restore(before)
        raise why from None
