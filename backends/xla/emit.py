"""A node as JAX operations: views resolved, the rule called, writes applied."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.functions import arrays_in, program_of
from fuse.backends.xla import views
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules.context import Place, RuleContext
from fuse.backends.xla.rules.registry import DOUBLES, RULES, Unsupported
from fuse.errors import VerifyError
from fuse.trace.bind import bind
from fuse.trace.decompose import Decomposition, Ref
from fuse.trace.node import DtypeArg, HostArg, Node, NumberArg, Operand, TensorArg, Write
from fuse.trace.promote import promoted_operands, result_type
from fuse.trace.spec import ITEMSIZE, Layout, TensorSpec, View, contiguous_strides

Values = dict[int, tuple[jax.Array, Layout]]
Reads = dict[Any, tuple[jax.Array, Place]]
Steps = Callable[[Node], Decomposition | None]


@dataclass(frozen=True, slots=True)
class Setting:
    """What is one for all nodes of a program.

    Attributes:
        platform: where it runs.
        steps: the operators of which a node without a rule is composed.
        updated: values that ``platform.update`` makes of the ones before them.
        scopes: whether what a node emits carries the node's name.
    """

    platform: Platform
    steps: Steps
    updated: frozenset[int] = frozenset()
    scopes: bool = False


_SINGLE = frozenset(("float32", "bfloat16", "float16", "bool"))
_TINY = 2.0**-126  # see fuse.backends.subnormals


class Scalars:
    """The packed array of varying numbers: 64-bit words as pairs of uint32.

    All become float64 at once: a TPU computes that conversion, in dozens of instructions for a
    number or for a vector of them.
    """

    def __init__(self, words: Any) -> None:
        self._words = words
        self._floats = lax.bitcast_convert_type(words, jnp.float64)

    def integer(self, slot: int) -> jax.Array:
        """Word ``slot`` as int64."""
        return lax.bitcast_convert_type(self._words[slot], jnp.int64)

    def unsigned(self, slot: int) -> jax.Array:
        """Word ``slot`` as uint64."""
        return lax.bitcast_convert_type(self._words[slot], jnp.uint64)

    @functools.cached_property
    def _singles(self) -> jax.Array:
        small = lax.abs(self._floats) < _TINY
        return jnp.where(small, 0, self._floats).astype(jnp.float32)

    def number(self, slot: int, like: float | int, single: bool = False) -> jax.Array:
        """Word ``slot`` as float64, float32 if ``single``, or int64, whichever ``like`` is."""
        if isinstance(like, float):
            return self._singles[slot] if single else self._floats[slot]
        return self.integer(slot)


def emit_node(
    node: Node,
    values: Values,
    reads: Reads,
    scalars: Scalars,
    setting: Setting,
) -> None:
    """Emit one node: extend ``values`` by what it makes.

    ``reads`` remembers resolved views and where they lie.
    """

    places: dict[int, Place] = {}

    def operand(index: int) -> jax.Array:
        found = node.operands[index]
        slot = node.slot_of(found.place)
        key = (found.value, found.view, slot)
        if key not in reads:
            reads[key] = read(found, slot, values, scalars)
        array, place = reads[key]
        places[id(array)] = place
        return array

    arguments, keywords = bind(node)
    resolve = _Arguments(node, operand, scalars, _takes_singles(node, setting))
    results = run_target(
        node.target,
        [resolve(value) for value in arguments],
        {name: resolve(value) for name, value in keywords.items()},
        context_of(node, scalars, setting, places),
        setting.steps(node),
    )
    _store(node, flatten(results), values, scalars, setting)


def read(
    operand: Operand,
    slot: int | None,
    values: Values,
    scalars: Scalars,
) -> tuple[jax.Array, Place]:
    """An operand's array, zeros where nothing was written, and where it lies."""
    view = operand.view
    if operand.value not in values:
        return jnp.zeros(view.shape, view.dtype), Place(None, view)
    base, layout = _reaching(*values[operand.value], view)
    array = views.read(base, layout, view, None if slot is None else scalars.integer(slot))
    fixed = slot is None and layout.dtype == view.dtype
    return array, Place(base if fixed else None, view)


def _takes_singles(node: Node, setting: Setting) -> bool:
    """Whether varying numbers are float32 to a rule, where nothing else is more.

    On a TPU, which emulates float64 and would convert them one by one.
    """
    if setting.platform.name != "tpu" or node.target in DOUBLES or node.random is not None:
        return False
    return bool(node.operands) and node.dtypes() <= _SINGLE


class _Arguments:
    """Turns a node's arguments into what a rule takes."""

    def __init__(
        self, node: Node, operand: Callable[[int], jax.Array], scalars: Scalars, single: bool
    ) -> None:
        self.node, self.operand, self.scalars, self.single = node, operand, scalars, single

    def __call__(self, value: Any) -> Any:
        if isinstance(value, TensorArg):
            return self.operand(value.index)
        if isinstance(value, NumberArg):
            slot = self.node.slot_of(value.place)
            if slot is None:
                return value.number
            return self.scalars.number(slot, value.number, self.single)
        if isinstance(value, HostArg):
            slot = self.node.slot_of(value.place)
            number = value.number
            if slot is not None and isinstance(number, (int, float)):
                single = self.single and value.dtype == "float64" and isinstance(number, float)
                made = self.scalars.number(slot, number, single)
                return made if single else made.astype(value.dtype)
            return jnp.asarray(number, value.dtype)
        if isinstance(value, DtypeArg):
            return value.name
        if isinstance(value, tuple):
            items = [self(item) for item in value]
            return items if any(isinstance(item, TensorArg) for item in value) else tuple(items)
        return value


def context_of(
    node: Node, scalars: Scalars, setting: Setting, places: dict[int, Place]
) -> RuleContext:
    """The rule's context: result specs in slot order, promoted dtype, random state."""
    specs: list[TensorSpec] = [output.view.spec for output in node.outputs]
    specs += [write.view.spec for write in node.writes]
    out = tuple(specs[slot] for slot in node.slots if slot is not None)
    promoted = result_type(promoted_operands(node))
    seed = offset = None
    if node.random is not None:
        seed, offset = scalars.unsigned(node.random), scalars.unsigned(node.random + 1)
    return RuleContext(
        out=out,
        result_type=promoted or (out[0].dtype if out else "float32"),
        platform=setting.platform,
        seed=seed,
        offset=offset,
        contiguous=tuple(
            operand.view.strides == contiguous_strides(operand.view.shape)
            for operand in node.operands
        ),
        places=places,
    )


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
) -> Any:
    """Call the rule of ``target``, or the rules of its decomposition."""
    if steps is None:
        program = program_of(target)
        if program is not None:
            return program.emit(context.platform.name, arrays_in(positional))
        return RULES[target](context, *positional, **keyword)
    tensors = [
        item
        for value in [*positional, *keyword.values()]
        for item in (value if isinstance(value, list) else [value])
        if isinstance(item, jax.Array)
    ]
    known: dict[int, Any] = dict(enumerate(tensors[: steps.inputs]))
    for number, (spec, data) in steps.constants:
        known[number] = jnp.asarray(data, spec.dtype)

    def resolve(value: Any) -> Any:
        if isinstance(value, Ref):
            return known[value.index]
        if isinstance(value, list):
            return [resolve(item) for item in value]
        return value

    for step in steps.steps:
        arguments = [resolve(value) for value in step.positional]
        options = {name: resolve(value) for name, value in step.keyword}
        inner = RuleContext(
            out=step.specs,
            result_type=_step_type(arguments, options) or step.specs[0].dtype,
            platform=context.platform,
        )
        made = flatten(RULES[step.target](inner, *arguments, **options))
        kept = [item for item in made if item is not None]
        for number, spec, array in zip(step.results, step.specs, kept, strict=True):
            known[number] = array.astype(spec.dtype)
    return tuple(None if number is None else known[number] for number in steps.results)


def _step_type(arguments: list[Any], options: dict[str, Any]) -> str | None:
    found: list[tuple[str, int, bool]] = []
    for value in [*arguments, *options.values()]:
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, jax.Array):
                found.append((str(item.dtype), item.ndim, False))
            elif isinstance(item, float):
                found.append(("float64", 0, True))
            elif isinstance(item, int) and not isinstance(item, bool):
                found.append(("int64", 0, True))
    return result_type(found)


def _store(
    node: Node,
    results: list[Any],
    values: Values,
    scalars: Scalars,
    setting: Setting,
) -> None:
    if len(results) < len(node.slots):
        raise VerifyError(f"{len(results)} results for {len(node.slots)} slots of\n  {node}")
    for slot, result in zip(node.slots, results, strict=False):
        if slot is None:
            continue
        if slot < len(node.outputs):
            output = node.outputs[slot]
            array = _checked(node, result, output.view)
            values[output.value] = (
                views.write(None, output.layout, output.view, array),
                output.layout,
            )
            continue
        write = node.writes[slot - len(node.outputs)]
        target = node.operands[write.operand]
        array = _checked(node, result, write.view)
        base, layout = values.get(target.value, (None, target.layout))
        if write.layout != layout:
            base = _relaid(base, layout, write)
            layout = write.layout
        place = node.slot_of(target.place)
        offset = None if place is None else scalars.integer(place)
        made = None
        if base is not None and write.value in setting.updated:
            made = setting.platform.update(base, write.view, array, offset)
        if made is None:
            made = views.write(base, layout, write.view, array, offset)
        values[write.value] = made, layout


def _reaching(base: jax.Array, layout: Layout, view: View) -> tuple[jax.Array, Layout]:
    """The buffer padded with zeros where its storage has grown past it (resize_)."""
    needed = 0 if 0 in view.shape else (view.last + 1) * ITEMSIZE[view.dtype]
    if needed <= layout.nbytes:
        return base, layout
    whole = Layout(layout.dtype, (-(-needed // ITEMSIZE[layout.dtype]),))
    return jnp.pad(base.reshape(-1), (0, whole.numel - layout.numel)), whole


def _relaid(base: jax.Array | None, layout: Layout, write: Write) -> jax.Array | None:
    """The old value in the layout of the new one: nothing of it where the view covers it."""
    covers = write.view.numel * ITEMSIZE[write.view.dtype] == write.layout.nbytes
    if base is None or covers or layout.numel == 0:
        return None
    # The storage has grown (resize_): what is new is zeros.
    whole = Layout(layout.dtype, (write.layout.nbytes // ITEMSIZE[layout.dtype],))
    padded = jnp.pad(base.reshape(-1), (0, whole.numel - layout.numel))
    view = View(write.layout.dtype, write.layout.shape, contiguous_strides(write.layout.shape))
    return views.read(padded, whole, view)


def _checked(node: Node, result: Any, view: View) -> jax.Array:
    if result is None:  # a gradient that was not asked for: nobody reads it
        return jnp.zeros(view.shape, view.dtype)
    if result.shape != view.shape:
        raise Unsupported(
            f"the rule of {node.target} returned shape {result.shape}, not {view.shape}"
        )
    array: jax.Array = result if str(result.dtype) == view.dtype else _convert(result, view.dtype)
    return array


def _convert(array: jax.Array, dtype: str) -> jax.Array:
    if jnp.iscomplexobj(array) and not dtype.startswith("complex"):
        array = jnp.real(array)
    return array.astype(dtype)
