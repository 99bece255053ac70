"""Runs a chunk node by node: views read, rules called, results and writes stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuse.backends.base import Chunk
from fuse.backends.context import Result
from fuse.backends.decomposed import run_steps
from fuse.backends.functions import arrays_in, program_of
from fuse.backends.numpy import views
from fuse.backends.numpy.rules.context import RuleContext, convert
from fuse.backends.numpy.rules.registry import REFUSALS, RULES, Unsupported
from fuse.trace.decompose import Decomposition, Step
from fuse.trace.evaluate import Evaluator, HostScalars
from fuse.trace.node import HostArg, Node, Operand, Output, Write

Steps = Callable[[Node], Decomposition | None]
Call = Callable[[str, RuleContext, Sequence[Any], dict[str, Any]], Result]


def run_chunk(
    chunk: Chunk, words: bytes, arrays: Sequence[np.ndarray], steps: Steps
) -> list[np.ndarray]:
    """The chunk's outputs, each a C-contiguous array that shares its memory with nothing else."""
    values = {leaf.value: array for leaf, array in zip(chunk.inputs, arrays, strict=True)}
    scalars = HostScalars(words)
    with np.errstate(all="ignore"):
        for node in chunk.nodes:
            _Interpreter(node, values, scalars, steps, call_rule).evaluate()
    return [values[value] for value in chunk.outputs]


def refusal(node: Node, steps: Steps) -> str | None:
    """Why a rule of the node does not cover its arguments, or ``None``. Runs no rule."""
    words = max([slot + 1 for _, slot in node.dynamic] + [(node.random or 0) + 2])
    asked = _Interpreter(node, {}, HostScalars(bytes(8 * words)), steps, _check_rule)
    try:
        asked.compute(*asked.bound())
    except Unsupported as error:
        return str(error)
    return None


class _Interpreter(Evaluator[np.ndarray]):
    """Evaluates a node by rules, which ``call`` calls; a value that there is not is zeros."""

    def __init__(
        self,
        node: Node,
        values: dict[int, np.ndarray],
        scalars: HostScalars,
        steps: Steps,
        call: Call,
    ) -> None:
        super().__init__(node, values, scalars)
        self._steps, self._call = steps, call

    def tensor(self, operand: Operand) -> np.ndarray:
        base, view = self.values.get(operand.value), operand.view
        if base is None:
            return _nothing(view.dtype, view.shape)
        return views.read(base, view, self.offset(operand))

    def host_tensor(self, value: HostArg) -> np.ndarray:
        return convert(self.number(value), value.dtype)

    def compute(self, positional: list[Any], keyword: dict[str, Any]) -> Result:
        steps = self._steps(self.node)
        if steps is not None:
            return run_steps(steps, [*positional, *keyword.values()], self._step, convert)
        context = RuleContext.of(self.node, self.scalars)
        return self._call(self.node.target, context, positional, keyword)

    def _step(self, step: Step, positional: list[Any], keyword: dict[str, Any]) -> Result:
        return run_step(step, positional, keyword, self._call)

    def write(
        self, old: np.ndarray | None, part: Output | Write, result: Any, offset: int | None
    ) -> np.ndarray:
        view = part.view
        array = _nothing(view.dtype, view.shape) if result is None else convert(result, view.dtype)
        return views.write(old, part.layout, view, array, offset)


def call_rule(
    target: str, context: RuleContext, positional: Sequence[Any], keyword: dict[str, Any]
) -> Result:
    """What the rule of ``target`` returns."""
    program = program_of(target)
    if program is not None:
        return program.on_host(arrays_in(positional))
    return RULES[target](context, *positional, **keyword)


def run_step(step: Step, positional: list[Any], keyword: dict[str, Any], call: Call) -> Result:
    """What a step of a decomposition computes, its rule being called by ``call``."""
    context = RuleContext.of_step(step, [*positional, *keyword.values()])
    return call(step.target, context, positional, keyword)


def _check_rule(
    target: str, context: RuleContext, positional: Sequence[Any], keyword: dict[str, Any]
) -> Result:
    """Placeholders of what the rule would return. Raises ``Unsupported`` where it refuses."""
    refuse = REFUSALS.get(target)
    reason = refuse(context, *positional, **keyword) if refuse is not None else None
    if reason is not None:
        raise Unsupported(f"{target}: {reason}")
    return [_nothing(spec.dtype, spec.shape) for spec in context.out]


def _nothing(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros of any size that take the memory of one element."""
    return np.broadcast_to(np.zeros((), dtype), shape)
