"""A chunk as a JAX function: node after node, or many as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.backends.base import Chunk
from fuse.backends.xla.calls import Call
from fuse.backends.xla.constants import Constants
from fuse.backends.xla.emit import Reads, Scalars, Setting, Values, emit_node, read
from fuse.backends.xla.horizontal_packing import Group, HorizontalPacking
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.products import Batch, Sum
from fuse.backends.xla.schedule import Step
from fuse.trace.node import Node, Operand, Output, layouts_of
from fuse.trace.spec import Layout, View, contiguous_strides

OUTPUT = -3
"""The value of a product of laid operands, which are -1 and -2."""


def emit_chunk(
    chunk: Chunk, order: Sequence[Step], stacks: HorizontalPacking, setting: Setting
) -> Callable[..., tuple[jax.Array, ...]]:
    """Return ``f(words, *inputs, *stacks) -> (*outputs, *stacks)`` for ``chunk``.

    ``words`` is uint32[scalars, 2]; ``stacks`` says what the program takes and returns as stacks
    beside the chunk's inputs and outputs, each an array with one row a value.
    """
    setting = replace(setting, constants=Constants(chunk.nodes, _emitter(setting)))

    def run(words: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        inputs = arrays[: len(chunk.inputs)]
        values: Values = {
            leaf.value: (array, leaf.layout)
            for leaf, array in zip(chunk.inputs, inputs, strict=True)
        }
        reads: Reads = {}
        scalars = Scalars(words)
        stacked = Stacked(chunk, stacks, arrays[len(inputs) :], values)
        for step in order:
            with _scope(chunk, step, setting):
                if isinstance(step, Group):
                    made = _emit_group(chunk, step, stacked, words, setting)
                    stacked.add(step.results, made)
                elif isinstance(step, Sum):
                    _emit_sum(chunk, step, values, scalars, setting)
                elif isinstance(step, Batch):
                    _emit_batch(chunk, step, values, scalars, setting)
                elif isinstance(step, Call):
                    step.emit(chunk, values)
                else:
                    emit_node(chunk.nodes[step], values, reads, scalars, setting)
        outputs = tuple(values[value][0] for value in chunk.outputs)
        return (*outputs, *map(stacked.get, stacks.outputs))

    return run


def _emitter(setting: Setting) -> Callable[[Sequence[Node], Operand], jax.Array]:
    """What computes a constant: in XLA's own terms, for it may be on another platform."""
    plain = Setting(Platform("cpu"), setting.steps)

    def emit(nodes: Sequence[Node], operand: Operand) -> jax.Array:
        values: Values = {}
        reads: Reads = {}
        scalars = Scalars(jnp.zeros((1, 2), jnp.uint32))
        for node in nodes:
            emit_node(node, values, reads, scalars, plain)
        return read(values.get(operand.value), operand.view, None)[0]

    return emit


def _scope(chunk: Chunk, step: Step, setting: Setting) -> AbstractContextManager[object]:
    """Names what a step emits after its first node, for profilers and ``targets/hlo.py``."""
    if not setting.scopes:
        return nullcontext()
    place = step if isinstance(step, int) else min(step.nodes)
    return jax.named_scope(f"n{place}.{chunk.nodes[place].op}")


def _emit_sum(chunk: Chunk, added: Sum, values: Values, scalars: Scalars, setting: Setting) -> None:
    """One product of the operands of all products, laid one after the other."""
    nodes = [chunk.nodes[place] for place in added.products]
    laid: Values = {}
    operands = tuple(_laid(nodes, side, 1 - side, laid, values, scalars) for side in (0, 1))
    output = replace(nodes[0].outputs[0], value=added.result)
    product = replace(nodes[0], operands=operands, outputs=(output,), dynamic=())
    emit_node(product, laid, {}, scalars, setting)
    # The additions may see the products through views: the last one says how the sum lies.
    layout = layouts_of((), [chunk.nodes[added.nodes[-1]]])[added.result]
    values[added.result] = laid[added.result][0].reshape(layout.shape), layout


def _emit_batch(
    chunk: Chunk, batch: Batch, values: Values, scalars: Scalars, setting: Setting
) -> None:
    """One product of all left operands, laid one below the other; its rows are the results."""
    nodes = [chunk.nodes[place] for place in batch.nodes]
    right = nodes[0].operands[1]
    laid: Values = {right.value: values[right.value]}
    left = _laid(nodes, 0, 0, laid, values, scalars)
    shape = (left.view.shape[0], right.view.shape[1])
    layout = Layout(right.view.dtype, shape)
    whole = Output(OUTPUT, View(layout.dtype, shape, contiguous_strides(shape)), layout)
    product = replace(nodes[0], operands=(left, right), outputs=(whole,), dynamic=())
    emit_node(product, laid, {}, scalars, setting)
    first = 0
    for node in nodes:
        (output,) = node.outputs
        count = output.view.shape[0]
        rows = lax.slice_in_dim(laid[OUTPUT][0], first, first + count)
        values[output.value] = rows.reshape(output.layout.shape), output.layout
        first += count


def _laid(
    nodes: Sequence[Node], side: int, axis: int, laid: Values, values: Values, scalars: Scalars
) -> Operand:
    """The operands ``side`` of products one after another along ``axis``, as a new one in ``laid``.

    They lie in memory as the first of them does: row by row, or column by column.
    """
    first = nodes[0].operands[side]
    turned = first.view.strides[0] < first.view.strides[1]
    parts = []
    for operand, node in ((node.operands[side], node) for node in nodes):
        slot = node.slot_of(operand.place)
        offset = None if slot is None else scalars.integer(slot)
        parts.append(read(values.get(operand.value), operand.view, offset)[0])
    if turned:
        parts, axis = [part.T for part in parts], 1 - axis
    whole = jnp.concatenate(parts, axis)
    laid[-1 - side] = whole, Layout(first.view.dtype, whole.shape)
    shape, strides = whole.shape, contiguous_strides(whole.shape)
    view = View(first.view.dtype, *((shape[::-1], strides[::-1]) if turned else (shape, strides)))
    return Operand(-1 - side, view, laid[-1 - side][1], first.place)


class Stacked:
    """The stacks of a chunk being emitted. Rows that are read one by one become values."""

    def __init__(
        self, chunk: Chunk, found: HorizontalPacking, inputs: Sequence[jax.Array], values: Values
    ) -> None:
        grouped = {place for group in found.groups for place in group.nodes}
        self._values = values
        self._layouts = layouts_of((), chunk.nodes)
        self._stacks: dict[tuple[int, ...], jax.Array] = {}
        self._single = {
            operand.value
            for place, node in enumerate(chunk.nodes)
            if place not in grouped
            for operand in node.operands
        }
        self._single.update(chunk.outputs)
        whole = {*found.inputs, *(group.results for group in found.groups)}
        read = [values for group in found.groups for values in group.operands]
        self._single.update(value for values in read if values not in whole for value in values)
        for rows, array in zip(found.inputs, inputs, strict=True):
            self.add(rows, array)

    def add(self, rows: tuple[int, ...], array: jax.Array) -> None:
        """Note the stack of these values."""
        self._stacks[rows] = array
        for at, value in enumerate(rows):
            if value in self._single:
                row = lax.index_in_dim(array, at, keepdims=False)
                self._values[value] = row, self._layouts[value]

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
    chunk: Chunk, group: Group, stacked: Stacked, words: jax.Array, setting: Setting
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
        emit_node(node, values, {}, Scalars(numbers), setting)
        return values[result][0]

    axes = (0, *(0 if len(values) > 1 else None for values in group.operands))
    arrays = map(stacked.read, group.operands)
    made: jax.Array = jax.vmap(one, in_axes=axes)(words[slots], *arrays)
    return made
