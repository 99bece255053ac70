"""A chunk as a JAX function: node after node, and what is equal of many as one on their stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.backends.base import Chunk
from fuse.backends.xla.emit import Reads, Scalars, Steps, Values, emit_node
from fuse.backends.xla.stacking import Group, Stacking
from fuse.trace.node import layouts_of


def emit_chunk(
    chunk: Chunk, stacks: Stacking, platform: str, steps: Steps
) -> Callable[..., tuple[Any, ...]]:
    """Return ``f(words, *inputs, *stacks) -> (*outputs, *stacks)`` for ``chunk``.

    ``words`` is uint32[scalars, 2]; ``stacks`` says what the program takes and returns as stacks
    beside the chunk's inputs and outputs, each an array with one row a value.
    """

    def run(words: jax.Array, *arrays: jax.Array) -> tuple[Any, ...]:
        inputs = arrays[: len(chunk.inputs)]
        values: Values = {
            leaf.value: (array, leaf.layout)
            for leaf, array in zip(chunk.inputs, inputs, strict=True)
        }
        reads: Reads = {}
        scalars = Scalars(words)
        stacked = Stacked(chunk, stacks, arrays[len(inputs) :], values)
        for step in stacks.steps:
            if isinstance(step, Group):
                stacked.add(step, _emit_group(chunk, step, stacked, words, platform, steps))
            else:
                emit_node(chunk.nodes[step], values, reads, scalars, platform, steps)
        outputs = tuple(values[value][0] for value in chunk.outputs)
        return (*outputs, *map(stacked.get, stacks.outputs))

    return run


class Stacked:
    """The stacks of a chunk being emitted. Rows that are read one by one become values."""

    def __init__(
        self, chunk: Chunk, found: Stacking, inputs: Sequence[jax.Array], values: Values
    ) -> None:
        groups = [step for step in found.steps if isinstance(step, Group)]
        self._values = values
        self._layouts = layouts_of((), chunk.nodes)
        self._stacks: dict[tuple[int, ...], jax.Array] = {}
        self._single = {
            operand.value
            for step in found.steps
            if not isinstance(step, Group)
            for operand in chunk.nodes[step].operands
        }
        self._single.update(chunk.outputs)
        whole = {*found.inputs, *(group.results for group in groups)}
        read = [values for group in groups for values in group.operands]
        self._single.update(value for values in read if values not in whole for value in values)
        for rows, array in zip(found.inputs, inputs, strict=True):
            self._add(rows, array)

    def _add(self, rows: tuple[int, ...], array: jax.Array) -> None:
        self._stacks[rows] = array
        for at, value in enumerate(rows):
            if value in self._single:
                row = lax.index_in_dim(array, at, keepdims=False)
                self._values[value] = row, self._layouts[value]

    def add(self, group: Group, array: jax.Array) -> None:
        """Note what ``group`` has made."""
        self._add(group.results, array)

    def get(self, rows: tuple[int, ...]) -> jax.Array:
        """The stack of these values, put together where there is none."""
        if rows not in self._stacks:
            shape = self._layouts[rows[0]].shape  # some may be of another shape, equally dense
            parts = [self._values[value][0].reshape(shape) for value in rows]
            self._stacks[rows] = jnp.stack(parts)
        return self._stacks[rows]

    def read(self, values: tuple[int, ...]) -> jax.Array:
        """What a group reads: a stack, or the one value that all its nodes share."""
        return self.get(values) if len(values) > 1 else self._values[values[0]][0]


def _emit_group(
    chunk: Chunk, group: Group, stacked: Stacked, words: jax.Array, platform: str, steps: Steps
) -> jax.Array:
    """The first of the group's nodes, mapped over the rows of the stacks they read."""
    nodes = [chunk.nodes[place] for place in group.nodes]
    node = nodes[0]
    node = replace(node, dynamic=tuple((place, at) for at, (place, _) in enumerate(node.dynamic)))
    slots = np.array([[slot for _, slot in one.dynamic] for one in nodes], np.int32)
    layouts = {operand.value: operand.layout for operand in node.operands}
    result = next(node.results())

    def one(numbers: jax.Array, *arrays: jax.Array) -> jax.Array:
        values: Values = {
            value: (array, layouts[value]) for value, array in zip(layouts, arrays, strict=True)
        }
        emit_node(node, values, {}, Scalars(numbers), platform, steps)
        return values[result][0]

    axes = (0, *(0 if len(values) > 1 else None for values in group.operands))
    arrays = map(stacked.read, group.operands)
    made: jax.Array = jax.vmap(one, in_axes=axes)(words[slots], *arrays)
    return made
