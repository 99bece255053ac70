"""Decompositions of nodes, found once for each distinct signature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fuse.bounded import Bounded
from fuse.trace.bind import bind
from fuse.trace.decompose import CannotDecompose, Decomposition, decompose
from fuse.trace.functional import find_overload
from fuse.trace.node import DtypeArg, HostArg, Node, NumberArg, TensorArg
from fuse.trace.signature import signature

MOST_SIGNATURES = 4096
"""Signatures of nodes that a backend remembers something of, up to some 10 kB each."""


class Decompositions:
    """A memo of decompositions by node signature."""

    def __init__(self, has_rule: Callable[[str], bool]) -> None:
        self._has_rule = has_rule
        self._known: Bounded[str, Decomposition | str] = Bounded(MOST_SIGNATURES)

    def get(self, node: Node) -> Decomposition | None:
        """The node's decomposition, ``None`` where its target has a rule of its own."""
        if self._has_rule(node.target):
            return None
        found = self._find(node)
        if isinstance(found, str):
            raise CannotDecompose(found)
        return found

    def reason(self, node: Node) -> str | None:
        """Why the node cannot be decomposed, or ``None``."""
        found = self._find(node)
        return found if isinstance(found, str) else None

    def _find(self, node: Node) -> Decomposition | str:
        return self._known.memo(signature(node), lambda: self._decomposed(node))

    def _decomposed(self, node: Node) -> Decomposition | str:
        try:
            return _decompose(node, self._has_rule)
        except CannotDecompose as error:
            return str(error)


def _decompose(node: Node, has_rule: Callable[[str], bool]) -> Decomposition:
    if node.blocks:
        raise CannotDecompose(f"{node.target} is random and has no rule")
    overload = find_overload(node.target)
    positional, keyword = bind(node)
    tensors: list[torch.Tensor] = []

    def convert(value: Any) -> Any:
        if isinstance(value, TensorArg):
            view = node.operands[value.index].view
            tensors.append(torch.empty(view.shape, dtype=getattr(torch, view.dtype), device="meta"))
            return _Slot(len(tensors) - 1)
        if isinstance(value, HostArg):
            tensors.append(torch.empty((), dtype=getattr(torch, value.dtype), device="meta"))
            return _Slot(len(tensors) - 1)
        if isinstance(value, NumberArg):
            return value.number
        if isinstance(value, DtypeArg):
            return getattr(torch, value.name)
        if isinstance(value, tuple):
            return [convert(item) for item in value]
        return value

    arguments = [convert(value) for value in positional]
    options = {name: convert(value) for name, value in keyword.items()}

    def call(values: list[torch.Tensor]) -> Any:
        def fill(value: Any) -> Any:
            if isinstance(value, _Slot):
                return values[value.index]
            return [fill(item) for item in value] if isinstance(value, list) else value

        return overload(*(fill(v) for v in arguments), **{n: fill(v) for n, v in options.items()})

    return decompose(overload, tensors, call, has_rule)


class _Slot:
    """Where a tensor goes among the arguments."""

    def __init__(self, index: int) -> None:
        self.index = index
