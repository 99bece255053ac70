"""A call that the core has never seen: made a node, and its numbers asked whether they may vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuse.backends.base import Backend
from fuse.bounded import Bounded
from fuse.engine.describe import build_node, call_key, pinned_places, renumbered
from fuse.engine.host_calls import HostCalls
from fuse.trace.fitting import Range
from fuse.trace.node import Node, Trace
from fuse.trace.reach import reach
from fuse.trace.refusals import refusal
from fuse.trace.source import call_path
from fuse.trace.varying import Numbers
from fuse.trace.views import dynamic_bounds

Bounds = tuple[tuple[int, int, int], ...] | tuple[Range]
MOST_DESCRIBED = 8192
"""Calls remembered without their values, about 2 kB each; a layer's come back with every layer."""


class Calls:
    """Describes calls for one backend, and remembers them without the values they read."""

    def __init__(
        self,
        backend: Backend,
        reject: Callable[[Node], str | None],
        host_calls: HostCalls,
        numbers: Numbers,
    ) -> None:
        self._backend = backend
        self._reject = reject
        self._host_calls = host_calls
        self._numbers = numbers
        self.described: Bounded[str, tuple[Node, tuple[int, ...]]] = Bounded(MOST_DESCRIBED)

    def describe(
        self,
        name: str,
        args: tuple[Any, ...],
        operands: list[Any],
        tensors: list[Any],
        writes: list[Any],
        results: list[Any],
    ) -> tuple[Node, int, tuple[int, ...], tuple[tuple[int, Bounds], ...]] | None:
        """The call as ``(node, random blocks, pinned places, varying places with bounds)``.

        ``None`` sends it to the host.
        """
        call = call_key(name, args, operands, tensors, writes, results)
        known = self.described.get(call)
        if known is None:
            node = build_node(
                name, args, operands, tensors, writes, results, self._backend.has_rule
            )
            reason = refusal(node) or self._reject(Trace.of([(node, ())]).nodes[0])
            if reason is not None:
                self._host_calls.refuse(name, reason)
                return None
            pinned = pinned_places(node) or self._backend.static_places(node)
            self.described[call] = node, pinned
        else:
            node, pinned = renumbered(known[0], operands, tensors, writes), known[1]
        varied = [place for place in self._numbers.varied(node, call_path) if place not in pinned]
        bounds = [(place, self.generalise(node, place)) for place in varied]
        varying = tuple((place, found) for place, found in bounds if found is not None)
        return node, node.blocks, pinned, varying

    def generalise(self, node: Node, place: int) -> Bounds | None:
        """Whether a number may vary: bounds of a view's offset, the range of a plain number.

        ``()`` where every number will do, ``None`` where no other.
        """
        for index, operand in enumerate(node.operands):
            if operand.place == place:
                view = operand.view
                if any(w.operand == index and w.view != view for w in node.writes):
                    return None  # out= is resized: where it may lie is another question
                zero = type(view)(view.dtype, view.shape, view.strides, 0)
                return dynamic_bounds(operand.layout, zero)
        probe = Trace.of([(node, (place,))]).nodes[0]
        if self._reject(probe) is not None:
            return None
        within = reach(node, place)
        return () if within is None else (within,)
