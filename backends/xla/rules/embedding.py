"""Embedding tables: rows read by index, and gradients summed back into them.

The backward is a scatter of rows. Against a product with a one-hot matrix it is 2 to 1000
times faster on XLA's CPU (100 to 50,000 rows of 128), and a one-hot product would turn one
infinite gradient into NaN everywhere.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.embedding import (
    MAX,
    MEAN,
    SUM,
    backward,
    bag_backward,
    refuse_bag_backward,
    refuse_dense_bag_backward,
    refuse_sparse,
)
from fuse.backends.xla.rules.elementwise import like
from fuse.backends.xla.rules.indexing import IN_BOUNDS, narrowed, take_along
from fuse.backends.xla.rules.registry import RuleContext, rule

Array = jax.Array


@rule("embedding")
def _embedding(
    ctx: RuleContext,
    weight: Array,
    indices: Array,
    padding_idx: int,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> Array:
    if weight.size == 0 or indices.size == 0:
        return jnp.zeros(ctx.out[0].shape, weight.dtype)
    return take_along(weight, indices, 0)


def _column(vector: Array, dtype: Any) -> Array:
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


@rule("embedding_dense_backward")
def _embedding_dense_backward(
    ctx: RuleContext,
    grad_output: Array,
    indices: Array,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Array:
    rows, width = ctx.out[0].shape
    if indices.size == 0 or width == 0:
        return jnp.zeros((rows, width), grad_output.dtype)
    grad = ctx.widened(grad_output).reshape(indices.size, width)
    index = narrowed(indices.reshape(-1), rows)
    return _summed_rows(grad, index, rows, padding_idx, scale_grad_by_freq)


rule("embedding_backward", refuse=refuse_sparse)(backward(_embedding_dense_backward))


@rule("embedding_renorm", static=("norm_type",))
def _embedding_renorm(
    ctx: RuleContext, self: Array, indices: Array, max_norm: Any, norm_type: float
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


def _bag_of(offsets: Array, count: int, last_included: bool) -> Array:
    """The bag of each of ``count`` indices: how many bags start at or before it, less one."""
    starts = offsets[:-1] if last_included else offsets
    marks = jnp.zeros(count, "int32").at[starts].add(1, mode="drop")
    return jnp.cumsum(marks, dtype="int32") - 1


def _largest(rows: Array, index: Array, bag: Array, valid: Array, bags: int) -> tuple[Any, Any]:
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


@rule("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(
    ctx: RuleContext,
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Array | None,
    include_last_offset: bool,
    padding_idx: int,
) -> tuple[Array, ...]:
    out, bag_out, size_out, largest_out = ctx.out
    bags = out.shape[0]
    zeros = [jnp.zeros(spec.shape, spec.dtype) for spec in ctx.out]
    if indices.size == 0 or weight.size == 0:
        return tuple(zeros)
    index = narrowed(indices, weight.shape[0])
    bag = _bag_of(offsets, index.size, include_last_offset)
    valid = index != padding_idx
    rows = ctx.widened(take_along(weight, index, 0))
    sizes = jnp.zeros(bags, "int32").at[bag].add(valid.astype("int32"), mode=IN_BOUNDS)
    # Empty where PyTorch's kernel needs no such list.
    bag_list = bag if bag_out.shape == bag.shape else zeros[1]
    if mode == MAX:
        value, row = _largest(rows, index, bag, valid, bags)
        return value, bag_list, _resized(sizes, size_out.shape), row.astype(largest_out.dtype)
    if per_sample_weights is not None:
        rows = rows * _column(per_sample_weights, rows.dtype)
    rows = jnp.where(_column(valid, bool), rows, 0)
    total = jnp.zeros(out.shape, rows.dtype).at[bag].add(rows, mode=IN_BOUNDS)
    if mode == SUM:
        return total, bag_list, zeros[2], zeros[3]
    mean = total / _column(jnp.maximum(sizes, 1), total.dtype)
    return mean, bag_list, _resized(sizes, size_out.shape), _resized(sizes, largest_out.shape)


def _bag_list(offset2bag: Array, offsets: Array, indices: Array) -> Array:
    """``offset2bag``, computed where the forward left it empty."""
    return offset2bag if offset2bag.size else _bag_of(offsets, indices.size, False)


@rule("_embedding_bag_dense_backward", refuse=refuse_dense_bag_backward)
def _embedding_bag_dense_backward(
    ctx: RuleContext,
    grad: Array,
    indices: Array,
    offset2bag: Array,
    bag_size: Array,
    maximum_indices: Array,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Array | None,
    padding_idx: int,
) -> Array:
    rows, width = ctx.out[0].shape
    grad, bag_size = ctx.widened(grad), bag_size[: grad.shape[0]]
    if indices.size == 0 or width == 0:
        return jnp.zeros((rows, width), grad.dtype)
    if mode == MAX:
        # An empty bag's indices are 0 and its gradient belongs to no row.
        taken = jnp.where(_column(bag_size > 0, bool), grad, 0)
        columns = lax.broadcasted_iota("int32", grad.shape, 1)
        key = (narrowed(maximum_indices, rows), columns)
        return jnp.zeros((rows, width), grad.dtype).at[key].add(taken, mode=IN_BOUNDS)
    if mode == MEAN:
        grad = grad / _column(jnp.maximum(bag_size, 1), grad.dtype)
    spread = take_along(grad, offset2bag, 0)
    if per_sample_weights is not None:
        spread = spread * _column(per_sample_weights, grad.dtype)
    index = narrowed(indices, rows)
    return _summed_rows(spread, index, rows, padding_idx, False)


rule("_embedding_bag_backward", refuse=refuse_bag_backward)(
    bag_backward(_embedding_bag_dense_backward, _bag_list)
)


@rule("_embedding_bag_per_sample_weights_backward")
def _embedding_bag_weights_backward(
    ctx: RuleContext,
    grad: Array,
    weight: Array,
    indices: Array,
    offsets: Array,
    offset2bag: Array,
    mode: int,
    padding_idx: int,
) -> Array:
    if indices.size == 0:
        return jnp.zeros(ctx.out[0].shape, grad.dtype)
    bag = _bag_list(offset2bag, offsets, indices)
    products = ctx.widened(take_along(grad, bag, 0)) * ctx.widened(take_along(weight, indices, 0))
    return jnp.where(indices != padding_idx, jnp.sum(products, axis=1), 0)
