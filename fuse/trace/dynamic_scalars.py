"""Dynamic scalars: numbers of a call that vary, known before its place in a stream has seen two.

An optimizer's first step makes its state and is another stream than all later ones. So the second
step is new as well, and the third is the first to show, at a place of that stream, that a step
size changes: an executable compiled for the second alone. But the place in the code that passes
the number is the same in all of them, and with the second step it has passed two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable

from fuse.trace.node import Arg, HostArg, Node, NumberArg, Operand, Output, Write

MOST_PLACES = 65_536
"""Calls whose numbers are remembered, 500 to 700 bytes each."""
Values = dict[int, float | int | bool | complex]
"""Numbers of a call by their places."""


class Numbers:
    """The numbers that each call of each place in the code passed first, and which have moved."""

    def __init__(self) -> None:
        # By hashes of calls: two that met would only be taken for one that varies.
        self._seen: dict[int, tuple[Values, frozenset[int]]] = {}
        self._calls: Counter[int] = Counter()

    def start(self) -> None:
        """A trace begins: calls of a place are counted from its start."""
        if self._calls:
            self._calls.clear()

    def varied(self, node: Node, path: Callable[[], tuple[Hashable, ...]]) -> tuple[int, ...]:
        """Places of numbers that this call passed otherwise in an earlier trace.

        It is the same call where the path (``source.call_path``, asked where there are numbers),
        operator and shapes are, and as many came before it in the trace.
        """
        numbers = _numbers(node)
        if not numbers:
            return ()
        seen: tuple[Operand | Output | Write, ...] = (*node.operands, *node.outputs, *node.writes)
        call = hash((path(), node.op, node.source, *(one.view.spec for one in seen)))
        self._calls[call] += 1
        key = hash((call, self._calls[call]))
        first, moved = self._seen.get(key, (numbers, frozenset[int]()))
        if first.keys() != numbers.keys():
            first, moved = numbers, frozenset()
        # What has moved is no constant for having one value twice: the last step of a generation
        # and a later step of the next, which is as long, are two streams with one offset.
        moved |= {place for place, number in numbers.items() if first[place] != number}
        if len(self._seen) >= MOST_PLACES:
            self._seen.clear()
        self._seen[key] = first, moved
        return tuple(sorted(moved))


def places(node: Node) -> tuple[int, ...]:
    """The places of all numbers that the call carries, the offsets of its views among them."""
    found = {operand.place for operand in node.operands}
    return tuple(sorted(found | {place for place, _ in _of(node.args)}))


def _numbers(node: Node) -> Values:
    found: Values = dict(_of(node.args))
    if any(operand.view.offset for operand in node.operands):
        found |= {operand.place: operand.view.offset for operand in node.operands}
    return found


def _of(args: Iterable[Arg]) -> Iterable[tuple[int, float | int | bool | complex]]:
    for arg in args:
        if isinstance(arg, tuple):
            yield from _of(arg)
        elif isinstance(arg, (NumberArg, HostArg)) and arg.place is not None:
            yield arg.place, arg.number
