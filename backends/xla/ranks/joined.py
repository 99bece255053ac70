"""A step of all ranks, lowered: every value of a rank is one shard of an array ``[ranks, ...]``, so
ranks need not have equal values, only programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fuse.backends.base import Chunk
from fuse.backends.decomposed import Decompositions
from fuse.backends.xla.emit import Setting
from fuse.backends.xla.horizontal_packing import HorizontalPacking
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.products import joined_products
from fuse.backends.xla.program import emit_chunk
from fuse.backends.xla.ranks.programs import AXIS, Form, groups_of, program, rows_of
from fuse.backends.xla.ranks.step import Joined
from fuse.backends.xla.ranks.unpack import unpacked
from fuse.backends.xla.schedule import ordered

AHEAD: Final = 2
"""Chunks that may still run when a gather begins. Without a bound all of a model's parameters would
be gathered first, and what is gathered again for the backward pass would be kept instead."""


def function(
    joined: Joined, platform: Platform, decompositions: Decompositions, ranks: int
) -> Callable[..., list[jax.Array]]:
    """One rank's ``f(*words, *inputs) -> outputs``, each with a first dimension of 1; runs under
    ``shard_map`` over ``AXIS``. ``words`` are the packed numbers of each chunk: uint32[1, n, 2].
    """
    emitted = [
        _emitted(part.what, platform, decompositions)
        if isinstance(part.what, Chunk)
        else _collective(part.what, platform, ranks)
        for part in joined.parts
    ]
    chunks = len(joined.chunks())

    def run(*arrays: jax.Array) -> list[jax.Array]:
        words = iter([one[0] for one in arrays[:chunks]])
        known = [value for value, _ in joined.inputs]
        values = dict(zip(known, (one[0] for one in arrays[chunks:]), strict=True))
        brought: set[int] = set()
        ends: list[jax.Array] = []  # a result of each chunk that computes with what was moved
        for part, call in zip(joined.parts, emitted, strict=True):
            given = [values[value] for value in part.reads]
            if isinstance(part.what, Chunk):
                made = list(call(next(words), *given))
                if made and not brought.isdisjoint(part.reads):
                    ends.append(min(made, key=lambda one: one.size))
            else:
                brought.update(part.makes)
                if part.what.kind == "all_gather" and len(ends) >= AHEAD:
                    given, _ = lax.optimization_barrier((given, ends[-AHEAD]))
                made = [one.reshape(to) for one, to in zip(call(*given), part.shapes, strict=True)]
            values.update(zip(part.makes, made, strict=True))
        values.update({value: values[value].reshape(to) for value, to in joined.shapes})
        return [values[value][None] for value in joined.outputs]

    return run


def _sent(form: Form, array: jax.Array) -> jax.Array:
    """An array as a collective takes it: flat, or in rows and of its dtype."""
    if not form.rows:
        return array.reshape(-1)
    return array.reshape(rows_of(form, array.shape)).astype(form.dtype)


def _collective(form: Form, platform: Platform, ranks: int) -> Callable[..., list[jax.Array]]:
    """A collective as one of all ranks of the program, of arrays as they lie."""
    form = replace(
        form,
        ranks=len(form.members) or ranks,
        split_sums=platform.name == "cpu",
        groups=groups_of(form.members, ranks) if form.members else (),
    )
    call = program(form)
    return lambda *given: call(*(_sent(form, one) for one in given))


def _emitted(
    chunk: Chunk, platform: Platform, decompositions: Decompositions
) -> Callable[..., tuple[jax.Array, ...]]:
    added, batched = joined_products(chunk)
    order = ordered(chunk, [*added, *batched])
    setting = Setting(platform, decompositions.get, scopes=platform.name != "cpu")
    return emit_chunk(chunk, order, HorizontalPacking(), setting)


def lowered(
    joined: Joined,
    platform: Platform,
    decompositions: Decompositions,
    devices: Sequence[jax.Device],
    donate: bool = False,
) -> jax.stages.Lowered:
    """What ``jax.jit`` lowers the step to, for these devices in the order of their ranks.

    With ``donate`` a call consumes the inputs that the step has consumed.
    """
    joined = unpacked(joined)
    ranks = len(devices)
    mesh = Mesh(np.array(devices), (AXIS,))
    spec = PartitionSpec(AXIS)
    sharding = NamedSharding(mesh, spec)
    mapped = jax.shard_map(
        function(joined, platform, decompositions, ranks),
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
        check_vma=False,
    )
    with jax.enable_x64(True):
        given = [
            jax.ShapeDtypeStruct((ranks, chunk.scalars, 2), "uint32", sharding=sharding)
            for chunk in joined.chunks()
        ]
        given += [
            jax.ShapeDtypeStruct((ranks, *one.shape), one.dtype, sharding=sharding)
            for _, one in joined.inputs
        ]
        chunks = len(joined.chunks())
        consumed = [
            chunks + at for at, (value, _) in enumerate(joined.inputs) if value in joined.donated
        ]
        jitted = jax.jit(mapped, out_shardings=sharding, donate_argnums=consumed if donate else ())
        return jitted.lower(*given)
