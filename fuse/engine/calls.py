"""A call that the core has never seen: made a node, and its numbers asked whether they may vary."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fuse.backends.base import Backend
from fuse.bounded import Bounded
from fuse.engine.bridge import Bounds, Description, Made, RawCall
from fuse.engine.describe import build_node, call_key, renumbered
from fuse.engine.host_calls import HostCalls
from fuse.trace.cpu_probe import with_probed_layout
from fuse.trace.dynamic_scalars import Numbers
from fuse.trace.node import Node, Trace
from fuse.trace.reach import reach
from fuse.trace.refusals import refusal
from fuse.trace.source import call_path
from fuse.trace.views import dynamic_bounds

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
        self.described: Bounded[str, tuple[Node, tuple[int, ...], Made]] = Bounded(MOST_DESCRIBED)

    def describe(self, call: RawCall) -> Description | None:
        """What the call is; ``None`` sends it to the host."""
        key = call_key(call)
        known = self.described.get(key)
        if known is None:
            inferred = build_node(call, self._backend.has_rule)
            node, reason = inferred, refusal(inferred)
            if reason is None:
                node = with_probed_layout(inferred)
                reason = self._reject(Trace.of([(node, ())]).nodes[0])
            if reason is not None:
                self._host_calls.refuse(call.name, reason)
                return None
            made = _made_otherwise(node, inferred)
            pinned = self._backend.static_places(node)
            self.described[key] = node, pinned, made
        else:
            node, pinned, made = known
            node = renumbered(node, call)
        varied = [place for place in self._numbers.varied(node, call_path) if place not in pinned]
        bounds = [(place, self.generalise(node, place)) for place in varied]
        varying = tuple((place, found) for place, found in bounds if found is not None)
        return Description(node, node.blocks, pinned, varying, made)

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


def _made_otherwise(node: Node, inferred: Node) -> Made:
    """The outputs that are not as inferred."""
    views = (output.view for output in node.outputs)
    pairs = enumerate(zip(views, inferred.outputs, strict=True))
    return tuple(
        (number, getattr(torch, view.dtype), view.strides)
        for number, (view, before) in pairs
        if view != before.view
    )
