"""Decompositions of nodes, found once for each distinct signature, and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fuse.backends.functions import arrays_in
from fuse.bounded import Bounded
from fuse.trace.decompose import CannotDecompose, Decomposition, Ref, Step, decompose
from fuse.trace.evaluate import Arguments, flatten
from fuse.trace.functional import find_overload
from fuse.trace.node import HostArg, Node, Operand
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
    tensors: list[torch.Tensor] = []

    def make(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
        tensors.append(torch.empty(shape, dtype=getattr(torch, dtype), device="meta"))
        return tensors[-1]

    _Tensors(node, make).bound()

    def call(values: list[torch.Tensor]) -> Any:
        given = iter(values)
        positional, keyword = _Tensors(node, lambda dtype, shape: next(given)).bound()
        return overload(*positional, **keyword)

    return decompose(overload, tensors, call, has_rule)


class _Tensors(Arguments):
    """The arguments for the operator itself, each tensor made for a dtype and a shape."""

    for_kernel = True

    def __init__(self, node: Node, make: Callable[[str, tuple[int, ...]], torch.Tensor]) -> None:
        super().__init__(node)
        self._make = make

    def tensor(self, operand: Operand) -> torch.Tensor:
        return self._make(operand.view.dtype, operand.view.shape)

    def host_tensor(self, value: HostArg) -> torch.Tensor:
        return self._make(value.dtype, ())


def run_steps(
    found: Decomposition,
    arguments: Sequence[Any],
    call: Callable[[Step, list[Any], dict[str, Any]], Any],
    convert: Callable[[Any, str], Any],
) -> tuple[Any, ...]:
    """The results of a decomposition of a call with these arguments, arrays among them.

    ``call`` computes a step, ``convert`` gives an array, or NumPy's of a constant, another dtype.
    """
    known: dict[int, Any] = dict(enumerate(arrays_in(arguments)[: found.inputs]))
    for number, (spec, data) in found.constants:
        known[number] = convert(np.array(data, spec.dtype).reshape(spec.shape), spec.dtype)

    def resolve(value: object) -> Any:
        if isinstance(value, Ref):
            return known[value.index]
        return [resolve(item) for item in value] if isinstance(value, list) else value

    for step in found.steps:
        positional = [resolve(value) for value in step.positional]
        keyword = {name: resolve(value) for name, value in step.keyword}
        made = arrays_in(flatten(call(step, positional, keyword)))
        for number, spec, array in zip(step.results, step.specs, made, strict=True):
            known[number] = convert(array, spec.dtype)
    return tuple(None if number is None else known[number] for number in found.results)
