"""Operators without a rule, taken apart by PyTorch's own decompositions.

A decomposition is traced on meta tensors with ``make_fx`` and kept as a list of ``Step``s,
each a call of an overload that has a rule. It depends on shapes, dtypes and attributes
only, so it is found once for each distinct call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch._decomp
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx

from fuse.trace.functional import DROPPED, overload_name
from fuse.trace.operators import operator as operator_of
from fuse.trace.spec import TensorSpec


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor inside a decomposition: an input of it, or a step's result."""

    index: int


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a decomposition: ``results`` are its tensors' numbers, in order."""

    target: str
    positional: tuple[Any, ...]
    keyword: tuple[tuple[str, Any], ...]
    results: tuple[int, ...]
    specs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Steps over ``inputs`` tensors numbered from 0, and the numbers of the results."""

    inputs: int
    constants: tuple[tuple[int, Any], ...]
    steps: tuple[Step, ...]
    results: tuple[int | None, ...]


class CannotDecompose(Exception):
    """PyTorch has no decomposition into operators that have rules; the text says why."""


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape and dtype of a tensor."""
    return TensorSpec(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def decompose(
    overload: torch._ops.OpOverload,
    tensors: list[torch.Tensor],
    call: Callable[[list[torch.Tensor]], Any],
    has_rule: Callable[[str], bool],
) -> Decomposition:
    """Trace ``call`` on meta ``tensors`` into steps that all have rules.

    Raises ``CannotDecompose`` where PyTorch cannot, or where a step has no rule.
    """
    graph = _traced(lambda *args: call(list(args)), tensors, has_rule)
    return _Reader(graph, len(tensors), has_rule, overload_name(overload)).read()


def graph_steps(
    function: Callable[..., Any], tensors: list[torch.Tensor], has_rule: Callable[[str], bool]
) -> tuple[Decomposition, list[torch.Tensor]]:
    """A function of fake tensors, traced into steps that all have rules, and its fake results.

    What it writes into its own tensors is written out. Raises ``CannotDecompose``, also where a
    result is no tensor, or where it writes into what it is given.
    """
    made: list[Any] = []

    def pure(name: str) -> bool:
        return not operator_of(name).writes and has_rule(name)

    def call(*given: torch.Tensor) -> Any:
        results = torch.func.functionalize(function, remove="mutations")(*given)
        made[:] = torch.utils._pytree.tree_leaves(results)
        return results

    versions = [one._version for one in tensors]
    graph = _traced(call, tensors, pure)
    if versions != [one._version for one in tensors]:
        raise CannotDecompose("it writes into what it is given")
    if not all(isinstance(one, torch.Tensor) for one in made):
        raise CannotDecompose("a result is no tensor")
    return _Reader(graph, len(tensors), pure, "it").read(), made


def _traced(
    function: Callable[..., Any], tensors: list[torch.Tensor], has_rule: Callable[[str], bool]
) -> torch.fx.GraphModule:
    table = {
        target: made
        for target, made in torch._decomp.decomposition_table.items()
        if isinstance(target, torch._ops.OpOverload) and not has_rule(overload_name(target))
    }
    try:
        with torch.no_grad():
            return make_fx(function, decomposition_table=table)(*tensors)
    except Exception as error:  # noqa: BLE001  (any failure of foreign code means: not this way)
        raise CannotDecompose(f"{type(error).__name__}: {error}".splitlines()[0]) from error


class _Reader:
    """Turns an FX graph into a ``Decomposition``."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        inputs: int,
        has_rule: Callable[[str], bool],
        name: str,
    ) -> None:
        self.module, self.inputs, self.has_rule, self.name = module, inputs, has_rule, name
        self.numbers: dict[Any, Any] = {}
        self.constants: list[tuple[int, Any]] = []
        self.steps: list[Step] = []
        self.count = 0

    def read(self) -> Decomposition:
        results: tuple[int | None, ...] = ()
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self.numbers[node] = self._next()
            elif node.op == "get_attr":
                self._constant(node)
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                flat = torch.utils._pytree.tree_leaves(node.args[0])
                results = tuple(
                    None if item is None else self._number(self._tensor(item)) for item in flat
                )
        return Decomposition(self.inputs, tuple(self.constants), tuple(self.steps), results)

    def _next(self) -> int:
        self.count += 1
        return self.count - 1

    def _number(self, ref: object) -> int:
        if not isinstance(ref, Ref):
            raise CannotDecompose(f"{self.name} returns a number")
        return ref.index

    def _constant(self, node: torch.fx.Node) -> None:
        value = getattr(self.module, str(node.target))
        known = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
        if not known or value.is_meta:
            raise CannotDecompose(f"{self.name} holds a constant {node.target}")
        number = self._next()
        self.numbers[node] = number
        self.constants.append((number, (spec_of(value), value.tolist())))

    def _call(self, node: torch.fx.Node) -> None:

        if node.target is operator.getitem:
            source, index = node.args
            self.numbers[node] = self.numbers[source][index]
            return
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            raise CannotDecompose(f"{self.name} calls {target}")
        name = overload_name(target)
        if not self.has_rule(name):
            raise CannotDecompose(f"{self.name} needs {name}, which has no rule")
        value = node.meta["val"] if "val" in node.meta else node.meta["tensor_meta"]
        tensors = list(value) if isinstance(value, (list, tuple)) else [value]
        # Integers among the results are what only CUDA's kernels go on with.
        numbers = [self._next() if hasattr(one, "dtype") else None for one in tensors]
        positional, keyword = self._arguments(target, node)
        kept = [(n, spec_of(t)) for n, t in zip(numbers, tensors, strict=True) if n is not None]
        self.steps.append(
            Step(name, positional, keyword, tuple(n for n, _ in kept), tuple(s for _, s in kept))
        )
        self.numbers[node] = numbers if isinstance(value, (list, tuple)) else numbers[0]

    def _arguments(
        self, target: torch._ops.OpOverload, node: torch.fx.Node
    ) -> tuple[tuple[Any, ...], Any]:
        positional: list[Any] = []
        keyword: list[tuple[str, Any]] = []
        for index, argument in enumerate(target._schema.arguments):
            if argument.name in DROPPED:
                continue
            given = node.args[index] if index < len(node.args) else None
            if index >= len(node.args):
                given = node.kwargs.get(argument.name, argument.default_value)
            value = self._tensor(given)
            if argument.kwarg_only:
                keyword.append((argument.name, value))
            else:
                positional.append(value)
        return tuple(positional), tuple(keyword)

    def _tensor(self, value: object) -> Any:
        if isinstance(value, torch.fx.Node):
            if self.numbers[value] is None:
                raise CannotDecompose(f"{self.name} computes with a number of {value.target}")
            return Ref(self.numbers[value])
        if isinstance(value, (list, tuple)):
            items = [self._tensor(item) for item in value]
            return items if any(isinstance(item, Ref) for item in items) else tuple(items)
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        return value
