"""A step with its collectives as one SPMD program: what all ranks run together, where they agree.

Parts are chunks and collectives in an order in which each follows what it reads. Every value of a
rank is one shard of an array ``[ranks, ...]``, so ranks need not have equal values, only programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fuse.backends.base import Chunk
from fuse.backends.decomposed import Decompositions
from fuse.backends.xla.emit import Setting
from fuse.backends.xla.horizontal_packing import HorizontalPacking
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.products import joined_products
from fuse.backends.xla.program import emit_chunk
from fuse.backends.xla.ranks.programs import AXIS, Form, program
from fuse.backends.xla.schedule import ordered
from fuse.trace.node import Node


@dataclass(frozen=True, slots=True)
class Part:
    """A chunk, or a collective; ``reads`` and ``makes`` are values of the whole step.

    ``shapes`` are those of the results of a collective, whose program has them flat.
    """

    what: Chunk | Form
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Spec:
    """An array that the step takes: shape, and NumPy's name of the dtype."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Joined:
    """A step as one program.

    Attributes:
        parts: chunks and collectives, in order.
        inputs: values from before the step and what they are, in the order of first use.
        outputs: values that are still there after it, ascending.
        shapes: where a value is the next step's input, the shape that it has there, which may be
            another than it was made with.
    """

    parts: tuple[Part, ...]
    inputs: tuple[tuple[int, Spec], ...]
    outputs: tuple[int, ...]
    shapes: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The operations of all chunks."""
        return tuple(node for part in self.chunks() for node in part.nodes)

    def chunks(self) -> list[Chunk]:
        """The chunks, in order."""
        return [part.what for part in self.parts if isinstance(part.what, Chunk)]

    def forms(self) -> list[Form]:
        """The collectives, in order."""
        return [part.what for part in self.parts if isinstance(part.what, Form)]


def function(
    joined: Joined, platform: Platform, decompositions: Decompositions, ranks: int
) -> Callable[..., list[jax.Array]]:
    """One rank's ``f(*words, *inputs) -> outputs``, each with a first dimension of 1; runs under
    ``shard_map`` over ``AXIS``. ``words`` are the packed numbers of each chunk: uint32[1, n, 2].
    """
    emitted = [
        _emitted(part.what, platform, decompositions)
        if isinstance(part.what, Chunk)
        else program(replace(part.what, ranks=ranks, split_sums=platform.name == "cpu"))
        for part in joined.parts
    ]
    chunks = len(joined.chunks())

    def run(*arrays: jax.Array) -> list[jax.Array]:
        words = iter([one[0] for one in arrays[:chunks]])
        known = [value for value, _ in joined.inputs]
        values = dict(zip(known, (one[0] for one in arrays[chunks:]), strict=True))
        for part, call in zip(joined.parts, emitted, strict=True):
            given = [values[value] for value in part.reads]
            if isinstance(part.what, Chunk):
                made = list(call(next(words), *given))
            else:
                flat = call(*(one.reshape(-1) for one in given))
                made = [one.reshape(to) for one, to in zip(flat, part.shapes, strict=True)]
            values.update(zip(part.makes, made, strict=True))
        values.update({value: values[value].reshape(to) for value, to in joined.shapes})
        return [values[value][None] for value in joined.outputs]

    return run


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
) -> jax.stages.Lowered:
    """What ``jax.jit`` lowers the step to, for these devices in the order of their ranks."""
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
        return jax.jit(mapped, out_shardings=sharding).lower(*given)
