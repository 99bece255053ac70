"""A chunk lowered for a platform, and whether a node can be: what compiling starts from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import torch

from fuse.backends.base import Chunk
from fuse.backends.decomposed import Decompositions
from fuse.backends.functions import is_function
from fuse.backends.xla import dispatch
from fuse.backends.xla.calling_convention import CallingConvention, passed
from fuse.backends.xla.calls import Call
from fuse.backends.xla.emit import Scalars, Setting, emit_node
from fuse.backends.xla.horizontal_packing import Group, HorizontalPacking, stacking
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.products import Batch, Sum, joined_products
from fuse.backends.xla.program import emit_chunk
from fuse.backends.xla.rules.registry import RULES, Unsupported
from fuse.backends.xla.schedule import ordered
from fuse.trace.functional import find_overload
from fuse.trace.node import Node
from fuse.trace.spec import HALF_COMPLEX


def lowered(
    chunk: Chunk,
    platform: Platform,
    decompositions: Decompositions,
    device: jax.Device | None = None,
) -> tuple[jax.stages.Lowered, CallingConvention]:
    """What ``jax.jit`` lowers ``chunk`` to, and how its arrays go in and out.

    ``device``: the one to lower for, which need not exist; by default JAX's first.
    """
    added, batched = joined_products(chunk)
    apart = {place for one in added for place in one.nodes}
    stacks = stacking(chunk, by_element, apart) if platform.stacks() else HorizontalPacking()
    program, passing, donated = passed(chunk, stacks)
    merged: list[Group | Sum | Batch | Call] = [*stacks.groups, *added, *batched]
    merged += platform.calls(program, {place for one in merged for place in one.nodes})
    order = ordered(program, merged)
    updated = platform.updates(program)
    scopes = platform.name != "cpu"
    setting = Setting(platform, decompositions.get, updated, scopes)
    function = emit_chunk(program, order, stacks, setting)
    where: dict[str, Any] = {}
    if device is not None:
        sharding = jax.sharding.SingleDeviceSharding(device)
        where = {"in_shardings": sharding, "out_shardings": sharding}
    with jax.enable_x64(True):
        words = jax.ShapeDtypeStruct((chunk.scalars, 2), "uint32")
        specs = [jax.ShapeDtypeStruct(i.layout.shape, i.layout.dtype) for i in program.inputs]
        layouts = {leaf.value: leaf.layout for leaf in chunk.inputs}
        for values in stacks.inputs:
            row = layouts[values[0]]
            specs.append(jax.ShapeDtypeStruct((len(values), *row.shape), row.dtype))
        jitted = jax.jit(function, donate_argnums=donated, keep_unused=True, **where)
        return dispatch.lowered(jitted, [words, *specs]), passing


def compiled(
    program: jax.stages.Lowered, platform: Platform, options: Mapping[str, Any] | None = None
) -> jax.stages.Compiled:
    """What the compiler makes of a lowered program, by the platform's options and by ``options``.

    Raises what it says of one that it refuses under those that the platform has instead, too.
    """
    # Any: JAX declares fewer kinds of values than it takes.
    chosen: dict[str, Any] = {**(platform.options(program) or {}), **(options or {})}
    with jax.enable_x64(True):
        try:
            return program.compile(chosen or None)
        except jax.errors.JaxRuntimeError as error:
            instead = platform.instead(error)
            if instead is None:
                raise
        return program.compile({**chosen, **instead})


def by_element(node: Node) -> bool:
    """Whether a rule computes ``node`` element by element."""
    overload = find_overload(node.target)
    pointwise = overload is not None and torch.Tag.pointwise in overload.tags
    return pointwise and node.target in RULES


def rejection(node: Node, platform: Platform, decompositions: Decompositions) -> str | None:
    """Why ``node`` cannot run on ``platform``, or ``None``; its rule is traced abstractly."""
    missing = sorted(node.dtypes() & HALF_COMPLEX)
    if missing:
        return f"XLA has no {', '.join(missing)}"
    refused = platform.refuses(node)
    if refused is not None:
        return refused
    if node.target not in RULES and not is_function(node.target):
        reason = decompositions.reason(node)
        if reason is not None:
            return reason
    inputs = {op.value: op.layout for op in node.operands if op.initialised}
    setting = Setting(platform, decompositions.get)

    def run(words: jax.Array, arrays: dict[int, jax.Array]) -> list[jax.Array]:
        values = {value: (array, inputs[value]) for value, array in arrays.items()}
        emit_node(node, values, {}, Scalars(words), setting)
        return [values[value][0] for value in node.results()]

    words = max([slot + 1 for _, slot in node.dynamic] + [(node.random or 0) + 2])
    with jax.enable_x64(True):
        specs = {v: jax.ShapeDtypeStruct(lay.shape, lay.dtype) for v, lay in inputs.items()}
        try:
            jax.eval_shape(run, jax.ShapeDtypeStruct((words, 2), "uint32"), specs)
        except Unsupported as error:
            return str(error)
        except Exception as error:  # noqa: BLE001  (a rule that fails is one we do not have)
            return f"the rule of {node.target} failed: {type(error).__name__}: {error}"
    return None
