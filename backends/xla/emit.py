"""A node as JAX operations: views resolved, the rule called, writes applied."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.decomposed import run_steps
from fuse.backends.functions import arrays_in, program_of
from fuse.backends.xla import views
from fuse.backends.xla.constants import Constants
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules.context import Place, RuleContext
from fuse.backends.xla.rules.registry import DOUBLES, RULES, Unsupported
from fuse.trace.decompose import Decomposition, Step
from fuse.trace.evaluate import Evaluator
from fuse.trace.node import HostArg, Node, NumberArg, Operand, Output, Write
from fuse.trace.spec import ITEMSIZE, Layout, View, contiguous_strides

Stored = tuple[jax.Array, Layout]
Values = dict[int, Stored]
Reads = dict[tuple[int, View, int | None], tuple[jax.Array, Place]]
Steps = Callable[[Node], Decomposition | None]


@dataclass(frozen=True, slots=True)
class Setting:
    """What is one for all nodes of a program.

    Attributes:
        platform: where it runs.
        steps: the operators of which a node without a rule is composed.
        updated: values that ``platform.update`` makes of the ones before them.
        scopes: whether what a node emits carries the node's name.
        constants: those of the program, where it is emitted as a whole.
    """

    platform: Platform
    steps: Steps
    updated: frozenset[int] = frozenset()
    scopes: bool = False
    constants: Constants | None = None


_SINGLE = frozenset(("float32", "bfloat16", "float16", "bool"))
_TINY = 2.0**-126  # see fuse.backends.subnormals


class Scalars:
    """The packed array of varying numbers: 64-bit words as pairs of uint32.

    All become float64 at once: a TPU computes that conversion, in dozens of instructions for a
    number or for a vector of them.
    """

    def __init__(self, words: jax.Array) -> None:
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

    def number(self, slot: int, like: object, single: bool = False) -> jax.Array:
        """Word ``slot`` as float64, float32 if ``single``, or int64, whichever ``like`` is."""
        if isinstance(like, float):
            return self._singles[slot] if single else self._floats[slot]
        return self.integer(slot)


class _Emitter(Evaluator[Stored]):
    """Emits what a node computes.

    ``reads`` remembers resolved views and where they lie.
    """

    misshapen = Unsupported
    scalars: Scalars

    def __init__(
        self,
        node: Node,
        values: Values,
        reads: Reads,
        scalars: Scalars,
        setting: Setting,
    ) -> None:
        super().__init__(node, values, scalars)
        self._reads, self._setting = reads, setting
        self._single = _takes_singles(node, setting)
        self._places: dict[int, Place] = {}

    def tensor(self, operand: Operand) -> jax.Array:
        key = (operand.value, operand.view, self.node.slot_of(operand.place))
        if key not in self._reads:
            stored = self.values.get(operand.value)
            array, place = read(stored, operand.view, self.offset(operand))
            if key[2] is None:
                place = replace(place, operand=operand)
            self._reads[key] = array, place
        array, place = self._reads[key]
        self._places[id(array)] = place
        return array

    def number(self, value: HostArg | NumberArg) -> Any:
        slot = self.node.slot_of(value.place)
        if slot is None:
            return value.number
        return self.scalars.number(slot, value.number, self._single)

    def host_tensor(self, value: HostArg) -> jax.Array:
        slot, number = self.node.slot_of(value.place), value.number
        if slot is None:
            return jnp.asarray(number, value.dtype)
        single = self._single and value.dtype == "float64" and isinstance(number, float)
        made = self.scalars.number(slot, number, single)
        return made if single else made.astype(value.dtype)

    def compute(self, positional: list[Any], keyword: dict[str, Any]) -> Any:
        steps, platform = self._setting.steps(self.node), self._setting.platform
        if steps is not None:
            return emit_steps(steps, [*positional, *keyword.values()], platform)
        program = program_of(self.node.target)
        if program is not None:
            return program.emit(platform, arrays_in(positional))
        known = {"platform": platform, "places": self._places, "constants": self._setting.constants}
        context = RuleContext.of(self.node, self.scalars, **known)
        return _called(self.node.target, context, positional, keyword)

    def write(
        self, old: Stored | None, part: Output | Write, result: Any, offset: jax.Array | None
    ) -> Stored:
        view, layout = part.view, part.layout
        array = jnp.zeros(view.shape, view.dtype) if result is None else result
        array = convert(array, view.dtype)
        base = None if old is None else _relaid(*old, part)
        made = None
        if base is not None and part.value in self._setting.updated:
            made = self._setting.platform.update(base, view, array, offset)
        if made is None:
            made = views.write(base, layout, view, array, offset)
        return made, layout


def _called(
    target: str, context: RuleContext, positional: list[Any], keyword: dict[str, Any]
) -> Any:
    """An operator's results: by the platform's kernel for it where it has one, or by its rule."""
    made = context.platform.operator(target, context.out, positional, keyword)
    return RULES[target](context, *positional, **keyword) if made is None else made


def emit_steps(
    found: Decomposition, arguments: Sequence[Any], platform: Platform
) -> tuple[jax.Array, ...]:
    """The results of a decomposition of a call with these arguments, arrays among them."""

    def step(one: Step, positional: list[Any], keyword: dict[str, Any]) -> Any:
        context = RuleContext.of_step(one, [*positional, *keyword.values()], platform=platform)
        return _called(one.target, context, positional, keyword)

    return run_steps(found, arguments, step, convert)


def emit_node(node: Node, values: Values, reads: Reads, scalars: Scalars, setting: Setting) -> None:
    """Emit one node: extend ``values`` by what it makes, and ``reads`` by what it reads."""
    _Emitter(node, values, reads, scalars, setting).evaluate()


def read(stored: Stored | None, view: View, offset: jax.Array | None) -> tuple[jax.Array, Place]:
    """A view's array, zeros where nothing was written, and where it lies."""
    if stored is None:
        return jnp.zeros(view.shape, view.dtype), Place(None, view)
    base, layout = _reaching(*stored, view)
    array = views.read(base, layout, view, offset)
    fixed = offset is None and layout.dtype == view.dtype
    return array, Place(base if fixed else None, view)


def _takes_singles(node: Node, setting: Setting) -> bool:
    """Whether varying numbers are float32 to a rule, where nothing else is more.

    On a TPU, which emulates float64 and would convert them one by one.
    """
    if setting.platform.name != "tpu" or node.target in DOUBLES or node.random is not None:
        return False
    return bool(node.operands) and node.dtypes() <= _SINGLE


def _reaching(base: jax.Array, layout: Layout, view: View) -> tuple[jax.Array, Layout]:
    """The buffer padded with zeros where its storage has grown past it (resize_)."""
    needed = 0 if 0 in view.shape else (view.last + 1) * ITEMSIZE[view.dtype]
    if needed <= layout.nbytes:
        return base, layout
    whole = Layout(layout.dtype, (-(-needed // ITEMSIZE[layout.dtype]),))
    return jnp.pad(base.reshape(-1), (0, whole.numel - layout.numel)), whole


def _relaid(base: jax.Array, layout: Layout, part: Output | Write) -> jax.Array | None:
    """The old value in the layout of the new one: nothing of it where the view covers it."""
    if part.layout == layout:
        return base
    covers = part.view.numel * ITEMSIZE[part.view.dtype] == part.layout.nbytes
    if covers or layout.numel == 0:
        return None
    # The storage has grown (resize_): what is new is zeros.
    whole = Layout(layout.dtype, (part.layout.nbytes // ITEMSIZE[layout.dtype],))
    padded = jnp.pad(base.reshape(-1), (0, whole.numel - layout.numel))
    view = View(part.layout.dtype, part.layout.shape, contiguous_strides(part.layout.shape))
    return views.read(padded, whole, view)


def convert(given: Any, dtype: str) -> jax.Array:
    """An array or number in another dtype, as ``Tensor.to`` converts it."""
    array: jax.Array = jnp.asarray(given)
    if str(array.dtype) == dtype:
        return array
    real = jnp.iscomplexobj(array) and not dtype.startswith("complex")
    return (jnp.real(array) if real else array).astype(dtype)
