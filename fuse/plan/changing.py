"""What changes from one trace to the next of the same form: it is kept out of the rest's chunks.

Text is generated token by token into a sequence that grows, by a model whose own shapes stay as
they are (its cache is as long as it will ever be). All of it is one trace, and every length is
another one. Cut where the growing part begins and ends, the model is the same chunk at every
length, compiled once; what is compiled anew is the copy of a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from fuse.plan.order import is_anchor
from fuse.trace.node import Node, Operand, Output, Trace, Write
from fuse.trace.signature import signature

FEWEST = 16
"""Operations from which on a trace is compared: smaller ones compile in no time."""
SHARE = 4
"""One operation in so many may be set apart; with more of them little is saved."""
MOST_FORMS = 256
"""Forms whose last trace is remembered."""
MOST_KEPT = 32_768
"""Operations of all these traces together, 1.5 kB each."""


class Forms:
    """The last trace of each form: the same operations, of tensors of the same ranks."""

    def __init__(self) -> None:
        self._last: dict[int, Trace] = {}
        self._kept = 0  # operations of them

    def changed(self, trace: Trace) -> frozenset[int]:
        """Results of the operations that differ from the last trace of this form.

        Nothing where all shapes are the same: numbers that vary are no reason for a cut. The
        trace is remembered in the other's place.
        """
        if len(trace.nodes) < FEWEST:
            return frozenset()
        form = hash(tuple((node.op, _ranks(node)) for node in trace.nodes))
        before = self._let_go(form)
        self._kept += len(trace.nodes)
        while len(self._last) >= MOST_FORMS or (self._last and self._kept > MOST_KEPT):
            self._let_go(next(iter(self._last)))
        self._last[form] = trace
        if before is None or len(before.nodes) != len(trace.nodes):
            return frozenset()
        pairs = list(zip(before.nodes, trace.nodes, strict=True))
        if all(_layouts(one) == _layouts(other) for one, other in pairs):
            return frozenset()
        return frozenset(
            value
            for one, other in pairs
            if signature(one) != signature(other)
            for value in other.results()
        )

    def _let_go(self, form: int) -> Trace | None:
        trace = self._last.pop(form, None)
        self._kept -= 0 if trace is None else len(trace.nodes)
        return trace


def _ranks(node: Node) -> tuple[int, ...]:
    return tuple(len(operand.view.shape) for operand in node.operands)


def _layouts(node: Node) -> list[object]:
    """The shapes of what a call reads and makes, and of the memory they lie in."""
    seen: tuple[Operand | Output | Write, ...] = (*node.operands, *node.outputs, *node.writes)
    return [(one.view.shape, one.layout) for one in seen]


def set_apart(
    nodes: Sequence[Node], changed: frozenset[int]
) -> tuple[tuple[Node, ...], tuple[int, ...]]:
    """``nodes`` in up to three groups, and the borders between these.

    First what changes and reads nothing that lasts, then what lasts and reads nothing that
    changes later, then the rest. There are no borders, and the order stays, where most of the
    dense work, or more than one operation in ``SHARE``, would not be in the second group.
    """
    groups: tuple[list[Node], ...] = ([], [], [])
    group_of: dict[int, int] = {}  # of each value
    for node in nodes if changed else ():
        read = max((group_of.get(operand.value, 0) for operand in node.operands), default=0)
        new = not changed.isdisjoint(node.results())
        group = max(read, 1) if not new else (0 if read == 0 else 2)
        group_of |= dict.fromkeys(node.results(), group)
        groups[group].append(node)
    first, lasting, rest = groups
    dense = sum(map(is_anchor, lasting))
    if not dense or 2 * dense <= sum(map(is_anchor, nodes)):
        return tuple(nodes), ()
    if SHARE * (len(first) + len(rest)) > len(nodes):
        return tuple(nodes), ()
    stops = accumulate(map(len, groups))
    return (*first, *lasting, *rest), tuple(dict.fromkeys(s for s in stops if 0 < s < len(nodes)))


def stretches(borders: Sequence[int], total: int) -> list[tuple[int, int]]:
    """``(start, stop)`` of what lies between the borders."""
    return list(pairwise((0, *borders, total)))
