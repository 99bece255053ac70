"""Embedding tables: rows read by index, and gradients summed back into them.

The backward is a scatter of rows. Against a product with a one-hot matrix it is 2 to 1000
times faster on XLA's CPU (100 to 50,000 rows of 128), and a one-hot product would turn one
infinite gradient into NaN everywhere.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from fuse.backends.embedding import MAX, MEAN, SUM, Bags, Embedding
from fuse.backends.xla.rules.elementwise import like
from fuse.backends.xla.rules.indexing import IN_BOUNDS, narrowed, take_along
from fuse.backends.xla.rules.registry import Number, RuleContext, rule

Array = jax.Array


@rule("embedding")
def _embedding(ctx: RuleContext, weight: Array, indices: Array, *_of_gradient: object) -> Array:
    if weight.size == 0 or indices.size == 0:
        return jnp.zeros(ctx.out[0].shape, weight.dtype)
    return take_along(weight, indices, 0)


def _column(vector: Array, dtype: DTypeLike) -> Array:
    return lax.expand_dims(vector.astype(dtype), (1,))


def _occurrences(index: Array, size: int) -> Array:
    return jnp.zeros(size, "int32").at[index].add(1, mode=IN_BOUNDS)


def _summed_rows(
    grad: Array, index: Array, rows: int, padding_idx: int, by_frequency: bool
) -> Array:
    """Sum ``grad[k]`` into row ``index[k]`` of ``rows`` zeros; the padding row stays zero."""
    if by_frequency:
        grad = grad / _column(take_along(_occurrences(index, rows), index, 0), grad.dtype)
    total = jnp.zeros((rows, grad.shape[1]), grad.dtype).at[index].add(grad, mode=IN_BOUNDS)
    if 0 <= padding_idx < rows:
        total = lax.dynamic_update_slice(total, jnp.zeros_like(total[:1]), (padding_idx, 0))
    return total


def _gradient(
    ctx: RuleContext, grad: Array, indices: Array, padding_idx: int, by_frequency: bool
) -> Array:
    rows, width = ctx.out[0].shape
    if indices.size == 0 or width == 0:
        return jnp.zeros((rows, width), grad.dtype)
    index = narrowed(indices.reshape(-1), rows)
    return _summed_rows(grad.reshape(indices.size, width), index, rows, padding_idx, by_frequency)


@rule("embedding_renorm", static=("norm_type",))
def _embedding_renorm(
    ctx: RuleContext, self: Array, indices: Array, max_norm: Number, norm_type: float
) -> Array:
    wide = ctx.widened(self)
    if norm_type == float("inf"):
        norm = jnp.max(jnp.abs(wide), axis=1)
    elif norm_type == 2:
        norm = jnp.sqrt(jnp.sum(wide * wide, axis=1))
    else:
        norm = jnp.sum(jnp.abs(wide) ** norm_type, axis=1) ** (1 / norm_type)
    used = _occurrences(narrowed(indices.reshape(-1), self.shape[0]), self.shape[0]) > 0
    # 1e-7 as in ATen/native/Embedding.cpp
    limit = like(norm, max_norm)
    scale = jnp.where(used & (norm > limit), limit / (norm + 1e-7), 1)
    return wide * _column(scale, wide.dtype)


def _bag_of(offsets: Array, count: int) -> Array:
    """The bag of each of ``count`` indices: how many bags start at or before it, less one."""
    marks = jnp.zeros(count, "int32").at[offsets].add(1, mode="drop")
    return jnp.cumsum(marks, dtype="int32") - 1


def _largest(rows: Array, index: Array, bag: Array, valid: Array, bags: int) -> tuple[Array, Array]:
    """The largest element of each bag in every column, and the table's row it came from."""
    lowest = jnp.full((bags, rows.shape[1]), -jnp.inf, rows.dtype)
    largest = lowest.at[bag].max(jnp.where(_column(valid, bool), rows, -jnp.inf), mode=IN_BOUNDS)
    count = index.size
    holds = (rows == take_along(largest, bag, 0)) & _column(valid, bool)
    place = jnp.where(holds, lax.broadcasted_iota("int32", rows.shape, 0), count)
    none = jnp.full(lowest.shape, count, "int32")
    first = none.at[bag].min(place, mode=IN_BOUNDS)
    found = first < count
    row = jnp.where(found, take_along(index, first, 0), 0)
    return jnp.where(found, largest, 0), row


def _resized(sizes: Array, shape: tuple[int, ...]) -> Array:
    """Cut or zero-extend the bags' sizes: PyTorch's CPU and meta kernels differ in how many."""
    kept = sizes[: shape[0]]
    return lax.pad(kept, jnp.zeros((), kept.dtype), [(0, shape[0] - kept.shape[0], 0)])


def _bags(
    ctx: RuleContext, weight: Array, indices: Array, offsets: Array, how: Bags[Array]
) -> tuple[Array, ...]:
    out, bag_out, size_out, largest_out = ctx.out
    bags = out.shape[0]
    zeros = [jnp.zeros(spec.shape, spec.dtype) for spec in ctx.out]
    if indices.size == 0 or weight.size == 0:
        return tuple(zeros)
    index = narrowed(indices, weight.shape[0])
    bag = _bag_of(offsets, index.size)
    valid = index != how.padding
    rows = ctx.widened(take_along(weight, index, 0))
    sizes = jnp.zeros(bags, "int32").at[bag].add(valid.astype("int32"), mode=IN_BOUNDS)
    # Empty where PyTorch's kernel needs no such list.
    bag_list = bag if bag_out.shape == bag.shape else zeros[1]
    if how.mode == MAX:
        value, row = _largest(rows, index, bag, valid, bags)
        return value, bag_list, _resized(sizes, size_out.shape), row.astype(largest_out.dtype)
    if how.weights is not None:
        rows = rows * _column(how.weights, rows.dtype)
    rows = jnp.where(_column(valid, bool), rows, 0)
    total = jnp.zeros(out.shape, rows.dtype).at[bag].add(rows, mode=IN_BOUNDS)
    if how.mode == SUM:
        return total, bag_list, zeros[2], zeros[3]
    mean = total / _column(jnp.maximum(sizes, 1), total.dtype)
    return mean, bag_list, _resized(sizes, size_out.shape), _resized(sizes, largest_out.shape)


def _bags_gradient(
    ctx: RuleContext,
    grad: Array,
    indices: Array,
    bag: Array,
    sizes: Array,
    maximum_indices: Array,
    how: Bags[Array],
) -> Array:
    rows, width = ctx.out[0].shape
    if indices.size == 0 or width == 0:
        return jnp.zeros((rows, width), grad.dtype)
    if how.mode == MAX:
        # An empty bag's indices are 0 and its gradient belongs to no row.
        taken = jnp.where(_column(sizes > 0, bool), grad, 0)
        columns = lax.broadcasted_iota("int32", grad.shape, 1)
        key = (narrowed(maximum_indices, rows), columns)
        return jnp.zeros((rows, width), grad.dtype).at[key].add(taken, mode=IN_BOUNDS)
    if how.mode == MEAN:
        grad = grad / _column(jnp.maximum(sizes, 1), grad.dtype)
    spread = take_along(grad, bag, 0)
    if how.weights is not None:
        spread = spread * _column(how.weights, grad.dtype)
    index = narrowed(indices, rows)
    return _summed_rows(spread, index, rows, how.padding, False)


def _weights_gradient(
    ctx: RuleContext, grad: Array, weight: Array, indices: Array, bag: Array, padding_idx: int
) -> Array:
    if indices.size == 0:
        return jnp.zeros(ctx.out[0].shape, grad.dtype)
    products = ctx.widened(take_along(grad, bag, 0)) * ctx.widened(take_along(weight, indices, 0))
    return jnp.where(indices != padding_idx, jnp.sum(products, axis=1), 0)


Embedding(_gradient, _bag_of, _bags, _bags_gradient, _weights_gradient).register(rule)
