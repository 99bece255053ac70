"""Runs a chunk node by node: views read, rules called, results and writes stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuse.backends.base import Chunk
from fuse.backends.functions import arrays_in, program_of
from fuse.backends.numpy import views
from fuse.backends.numpy.rules.context import RuleContext, convert
from fuse.backends.numpy.rules.registry import REFUSALS, RULES, Unsupported
from fuse.errors import VerifyError
from fuse.trace.bind import bind
from fuse.trace.decompose import Decomposition, Ref
from fuse.trace.node import DtypeArg, HostArg, Node, NumberArg, TensorArg
from fuse.trace.promote import promoted_operands, result_type
from fuse.trace.spec import TensorSpec, View, contiguous_strides

Steps = Callable[[Node], Decomposition | None]
Call = Callable[[str, RuleContext, Sequence[Any], dict[str, Any]], Any]


class Scalars:
    """The packed array of varying numbers: 64-bit words."""

    def __init__(self, words: bytes) -> None:
        self._words = np.frombuffer(words, np.uint64)

    def unsigned(self, slot: int) -> int:
        """Word ``slot`` as an unsigned integer."""
        return int(self._words[slot])

    def integer(self, slot: int) -> int:
        """Word ``slot`` as a signed integer."""
        return int(self._words.view(np.int64)[slot])

    def number(self, slot: int, like: float | int) -> float | int:
        """Word ``slot`` as a float or an integer, whichever ``like`` is."""
        if isinstance(like, float):
            return float(self._words.view(np.float64)[slot])
        return self.integer(slot)


def run_chunk(chunk: Chunk, words: bytes, arrays: Sequence[np.ndarray], steps: Steps) -> list[Any]:
    """The chunk's outputs, each a C-contiguous array that shares its memory with nothing else."""
    values = {leaf.value: array for leaf, array in zip(chunk.inputs, arrays, strict=True)}
    scalars = Scalars(words)
    with np.errstate(all="ignore"):
        for node in chunk.nodes:
            run_node(node, values, scalars, steps)
    return [values[value] for value in chunk.outputs]


def run_node(node: Node, values: dict[int, np.ndarray], scalars: Scalars, steps: Steps) -> None:
    """Run one node: extend ``values`` by what it makes."""
    resolve = _Arguments(node, values, scalars)
    arguments, keywords = bind(node)
    results = run_target(
        node.target,
        [resolve(value) for value in arguments],
        {name: resolve(value) for name, value in keywords.items()},
        context_of(node, scalars),
        steps(node),
        call_rule,
    )
    _store(node, flatten(results), values, scalars)


def refusal(node: Node, steps: Steps) -> str | None:
    """Why a rule of the node does not cover its arguments, or ``None``. Runs no rule."""
    values = {
        operand.value: _nothing(operand.layout.dtype, operand.layout.shape)
        for operand in node.operands
    }
    words = max([slot + 1 for _, slot in node.dynamic] + [(node.random or 0) + 2])
    scalars = Scalars(bytes(8 * words))
    resolve = _Arguments(node, values, scalars, elements=False)
    arguments, keywords = bind(node)
    try:
        run_target(
            node.target,
            [resolve(value) for value in arguments],
            {name: resolve(value) for name, value in keywords.items()},
            context_of(node, scalars),
            steps(node),
            _ask_rule,
        )
    except Unsupported as error:
        return str(error)
    return None


def call_rule(
    target: str, context: RuleContext, positional: Sequence[Any], keyword: dict[str, Any]
) -> Any:
    """What the rule of ``target`` returns."""
    program = program_of(target)
    if program is not None:
        return program.on_host(arrays_in(positional))
    return RULES[target](context, *positional, **keyword)


def _ask_rule(
    target: str, context: RuleContext, positional: Sequence[Any], keyword: dict[str, Any]
) -> Any:
    """Placeholders of what the rule would return. Raises ``Unsupported`` where it refuses."""
    refuse = REFUSALS.get(target)
    reason = refuse(context, *positional, **keyword) if refuse is not None else None
    if reason is not None:
        raise Unsupported(f"{target}: {reason}")
    return [_nothing(spec.dtype, spec.shape) for spec in context.out]


def _nothing(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of any size that takes the memory of one element."""
    return np.broadcast_to(np.zeros((), dtype), shape)


class _Arguments:
    """Turns a node's arguments into what a rule takes."""

    def __init__(
        self, node: Node, values: dict[int, np.ndarray], scalars: Scalars, elements: bool = True
    ) -> None:
        self.node, self.values, self.scalars, self.elements = node, values, scalars, elements

    def __call__(self, value: Any) -> Any:
        if isinstance(value, TensorArg):
            return self._operand(value.index)
        if isinstance(value, NumberArg):
            slot = self.node.slot_of(value.place)
            return value.number if slot is None else self.scalars.number(slot, value.number)
        if isinstance(value, HostArg):
            slot = self.node.slot_of(value.place)
            number = value.number
            if slot is not None and isinstance(number, (int, float)):
                number = self.scalars.number(slot, number)
            return convert(number, value.dtype)
        if isinstance(value, DtypeArg):
            return value.name
        if isinstance(value, tuple):
            items = [self(item) for item in value]
            return items if any(isinstance(item, TensorArg) for item in value) else tuple(items)
        return value

    def _operand(self, index: int) -> np.ndarray:
        found = self.node.operands[index]
        if not self.elements or found.value not in self.values:
            return _nothing(found.view.dtype, found.view.shape)
        slot = self.node.slot_of(found.place)
        offset = None if slot is None else self.scalars.integer(slot)
        return views.read(self.values[found.value], found.view, offset)


def context_of(node: Node, scalars: Scalars) -> RuleContext:
    """The rule's context: result specs in slot order, promoted dtype, random state."""
    specs: list[TensorSpec] = [output.view.spec for output in node.outputs]
    specs += [write.view.spec for write in node.writes]
    out = tuple(specs[slot] for slot in node.slots if slot is not None)
    promoted = result_type(promoted_operands(node)) or (out[0].dtype if out else "float32")
    seed = offset = None
    if node.random is not None:
        seed, offset = scalars.unsigned(node.random), scalars.unsigned(node.random + 1)
    contiguous = tuple(
        operand.view.strides == contiguous_strides(operand.view.shape) for operand in node.operands
    )
    return RuleContext(out, promoted, seed, offset, contiguous)


def flatten(results: Any) -> list[Any]:
    """A rule's results as one list, lists among them opened."""
    if not isinstance(results, (list, tuple)):
        return [results]
    return [item for result in results for item in flatten(result)]


def run_target(
    target: str,
    positional: Sequence[Any],
    keyword: dict[str, Any],
    context: RuleContext,
    steps: Decomposition | None,
    call: Call,
) -> Any:
    """Call the rule of ``target``, or the rules of its decomposition."""
    if steps is None:
        return call(target, context, positional, keyword)
    tensors = [
        item
        for value in [*positional, *keyword.values()]
        for item in (value if isinstance(value, list) else [value])
        if isinstance(item, np.ndarray)
    ]
    known: dict[int, Any] = dict(enumerate(tensors[: steps.inputs]))
    for number, (spec, data) in steps.constants:
        known[number] = np.array(data, spec.dtype).reshape(spec.shape)

    def resolve(value: Any) -> Any:
        if isinstance(value, Ref):
            return known[value.index]
        if isinstance(value, list):
            return [resolve(item) for item in value]
        return value

    for step in steps.steps:
        arguments = [resolve(value) for value in step.positional]
        options = {name: resolve(value) for name, value in step.keyword}
        promoted = _step_type(arguments, options) or step.specs[0].dtype
        made = flatten(call(step.target, RuleContext(step.specs, promoted), arguments, options))
        kept = [item for item in made if item is not None]
        for number, spec, array in zip(step.results, step.specs, kept, strict=True):
            known[number] = convert(array, spec.dtype)
    return tuple(None if number is None else known[number] for number in steps.results)


def _step_type(arguments: list[Any], options: dict[str, Any]) -> str | None:
    found: list[tuple[str, int, bool]] = []
    for value in [*arguments, *options.values()]:
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, np.ndarray):
                found.append((item.dtype.name, item.ndim, False))
            elif isinstance(item, float):
                found.append(("float64", 0, True))
            elif isinstance(item, int) and not isinstance(item, bool):
                found.append(("int64", 0, True))
    return result_type(found)


def _store(node: Node, results: list[Any], values: dict[int, np.ndarray], scalars: Scalars) -> None:
    if len(results) < len(node.slots):
        raise VerifyError(f"{len(results)} results for {len(node.slots)} slots of\n  {node}")
    for slot, result in zip(node.slots, results, strict=False):
        if slot is None:
            continue
        if slot < len(node.outputs):
            output = node.outputs[slot]
            array = _checked(node, result, output.view)
            values[output.value] = views.write(None, output.layout, output.view, array)
            continue
        write = node.writes[slot - len(node.outputs)]
        target = node.operands[write.operand]
        array = _checked(node, result, write.view)
        base = values.get(target.value)
        place = node.slot_of(target.place)
        offset = None if place is None else scalars.integer(place)
        values[write.value] = views.write(base, write.layout, write.view, array, offset)


def _checked(node: Node, result: Any, view: View) -> np.ndarray:
    if result is None:  # a gradient that was not asked for: nobody reads it
        return np.zeros(view.shape, view.dtype)
    if result.shape != view.shape:
        raise VerifyError(
            f"the rule of {node.target} returned shape {result.shape}, not {view.shape}"
        )
    return convert(result, view.dtype)
