"""PyTorch's loops and branches as single operations, whose graphs are parts of one program.

A graph that cannot be a part (it draws random numbers, reads a value, calls an operator without a
rule, or has results of several shapes) is left to PyTorch, which makes its calls one by one.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final

import jax
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fuse.backends.control_flow import ControlFlow, Kind
from fuse.backends.xla.control_flow import FlowProgram
from fuse.bounded import Bounded
from fuse.device import lazy
from fuse.kernels.function import Function, Traced
from fuse.kernels.kernel import NAMESPACE
from fuse.kernels.operators import call_operator
from fuse.trace.decompose import CannotDecompose, Decomposition, graph_steps, spec_of
from fuse.trace.random_blocks import is_random
from fuse.trace.spec import TensorSpec

Specs = tuple[tuple[TensorSpec, tuple[int, ...]] | int, ...]
_PARTS: Final[weakref.WeakKeyDictionary[Any, dict[Specs, _Part | None]]] = (
    weakref.WeakKeyDictionary()
)
"""What became of each graph, for each shapes and orders of memory."""
MOST_FLOWS: Final = 1024
"""Loops and branches that are remembered: a digest of all of its steps names each."""
_FLOWS: Final[Bounded[Any, _Flow]] = Bounded(MOST_FLOWS)


class _Part:
    """A graph's steps, and its results' shapes and dtypes."""

    def __init__(self, steps: Decomposition, results: list[TensorSpec]) -> None:
        self.steps, self.results = steps, results


class _Flow(Function):
    """A loop or branch as what an operator calls."""

    def __init__(self, flow: ControlFlow, results: Sequence[TensorSpec]) -> None:
        program = FlowProgram(flow)
        text = f"{program.code} {results}"  # the steps of a part do not say how many rounds
        super().__init__(f"{NAMESPACE}::{flow.kind}", text, _not_called)
        places = tuple(range(len(results)))
        structure = jax.tree.structure(list(places))
        self._whole = Traced(program, tuple(results), places, (), structure)

    def traced(self, specs: Sequence[TensorSpec]) -> Traced:
        """The program; it was made for these shapes."""
        return self._whole


def _not_called(*arrays: jax.Array) -> None:
    raise NotImplementedError("PyTorch differentiates and maps loops and branches itself")


def scan_op(combine: Any, init: Any, xs: Any, additional: Any) -> list[Any] | None:
    """``scan``: the last carried values and the stacked results, or ``None`` to leave it."""
    return _scan(combine, list(init), list(xs), list(additional))


def map_impl(function: Any, xs: Any, rest: Any) -> list[Any] | None:
    """``map``: the stacked results, or ``None`` to leave it."""
    return _scan(function, [], list(xs), list(rest))


def _scan(combine: Any, init: list[Any], xs: list[Any], rest: list[Any]) -> list[Any] | None:
    if not _are_plain([*init, *xs], rest) or not xs or len(xs[0]) == 0:
        return None
    part = _part(combine, [*init, *(x[0] for x in xs), *rest])
    if part is None or part.results[: len(init)] != [spec_of(one) for one in init]:
        return None
    length = len(xs[0])
    stacked = [TensorSpec(one.dtype, (length, *one.shape)) for one in part.results[len(init) :]]
    results = [*part.results[: len(init)], *stacked]
    return _run("scan", (len(init), len(xs)), [part], results, [*init, *xs, *rest])


def while_loop_op(condition: Any, body: Any, carried: Any, additional: Any) -> Any:
    """``while_loop``: the last carried values, or ``None`` to leave it."""
    values, arrays = list(carried), [*carried, *additional]
    if not _are_plain(values, additional):
        return None
    parts = [_part(condition, arrays), _part(body, arrays)]
    if parts[0] is None or parts[1] is None or parts[0].results != [TensorSpec("bool", ())]:
        return None
    if parts[1].results != [spec_of(one) for one in values]:
        return None
    found = _run("while_loop", (len(values), 0), parts, parts[1].results, arrays)
    return tuple(found)


def cond_op(choice: Any, true: Any, false: Any, operands: Any) -> Any:
    """``cond``: the results of one of the branches, or ``None`` to leave it."""
    arrays = [choice, *operands]
    if not _are_plain([choice], operands) or choice.numel() != 1 or choice.dtype != torch.bool:
        return None
    parts = [_part(true, arrays[1:]), _part(false, arrays[1:])]
    if parts[0] is None or parts[1] is None or parts[0].results != parts[1].results:
        return None
    return tuple(_run("cond", (0, 0), parts, parts[0].results, arrays))


def _run(
    kind: Kind,
    counts: tuple[int, int],
    parts: Sequence[_Part | None],
    results: Sequence[TensorSpec],
    arrays: Sequence[Any],
) -> list[torch.Tensor]:
    def make() -> _Flow:
        steps = tuple(part.steps for part in parts if part is not None)
        return _Flow(ControlFlow(kind, *counts, steps), results)

    flow = _FLOWS.memo((kind, counts, *parts, *results), make)
    return call_operator(flow, [one for one in arrays if isinstance(one, torch.Tensor)])


def _are_plain(arrays: Sequence[Any], more: Sequence[Any]) -> bool:
    """Whether all are the device's tensors; ``more`` may be sizes of these.

    Any other number would be a program for each of its values.
    """
    tensors = [one for one in (*arrays, *more) if isinstance(one, torch.Tensor)]
    sizes = {size for one in tensors for size in one.shape}
    numbers = [one for one in more if not isinstance(one, torch.Tensor)]
    return (
        len(tensors) + len(numbers) == len(arrays) + len(more)
        and all(one.device.type == "tpu" for one in tensors)
        and all(type(one) is int and one in sizes for one in numbers)
    )


def _part(graph: Any, examples: Sequence[Any]) -> _Part | None:
    """The graph for arrays like these, or ``None`` where it cannot be a part."""
    if not isinstance(graph, torch.fx.GraphModule):
        return None
    specs = tuple(
        (spec_of(one), one.stride()) if isinstance(one, torch.Tensor) else one for one in examples
    )
    known = _PARTS.setdefault(graph, {})
    if specs not in known:
        try:
            known[specs] = _made(graph, examples)
        except CannotDecompose:
            known[specs] = None
    return known[specs]


def _made(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> _Part:
    def of_tensors(*given: torch.Tensor) -> Any:
        left = iter(given)
        return graph(*(next(left) if isinstance(one, torch.Tensor) else one for one in examples))

    with FakeTensorMode():
        fakes = [
            torch.empty_strided(one.size(), one.stride(), dtype=one.dtype, device=one.device)
            for one in examples
            if isinstance(one, torch.Tensor)
        ]
        steps, results = graph_steps(of_tensors, fakes, lazy.engine().backend.has_rule)
    for step in steps.steps:
        if is_random(step.target) or step.target.startswith("as_strided"):
            raise CannotDecompose(f"{step.target} is no part of a loop or branch")
    return _Part(steps, [spec_of(one) for one in results])
