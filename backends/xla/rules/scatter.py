"""gather, scatter and their reductions along one dimension, and masked_scatter."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.backends.scatter import refuse_sparse, register_scatter
from fuse.backends.xla.rules.indexing import IN_BOUNDS, Key, for_scatter, narrowed, take_along
from fuse.backends.xla.rules.registry import Number, RuleContext, rule

Array = jax.Array
_METHODS = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}
_REDUCTIONS = {
    "sum": "sum", "add": "sum", "prod": "prod", "multiply": "prod",
    "mean": "mean", "amax": "amax", "amin": "amin",
}  # fmt: skip


def _cut(value: Array, shape: tuple[int, ...]) -> Array:
    return value if value.shape == shape else lax.slice(value, (0,) * value.ndim, shape)


def _key(index: Array, shape: tuple[int, ...], dim: int) -> tuple[Array, ...]:
    """Coordinates of every element that ``index`` names: its own place but along ``dim``."""
    return tuple(
        narrowed(index, shape[dim])
        if axis == dim
        else lax.broadcasted_iota("int32", index.shape, axis)
        for axis in range(index.ndim)
    )


@rule("gather")
def _gather(ctx: RuleContext, self: Array, dim: int, index: Array, *, sparse_grad: bool) -> Array:
    if index.size == 0 or self.ndim == 0:
        return jnp.broadcast_to(self, index.shape) if self.ndim == 0 else jnp.zeros_like(index)
    if index.ndim == 0:
        return take_along(self, index, 0)
    dim %= self.ndim
    if all(size == 1 for axis, size in enumerate(index.shape) if axis != dim):
        row = _cut(self, (*(1,) * dim, self.shape[dim], *(1,) * (self.ndim - dim - 1)))
        return take_along(row.reshape(-1), index, 0)
    self = _cut(self, (*index.shape[:dim], self.shape[dim], *index.shape[dim + 1 :]))
    batch = tuple(axis for axis in range(self.ndim) if axis != dim)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(dim,),
        start_index_map=(dim,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
    )
    places = lax.expand_dims(narrowed(index, self.shape[dim]), (index.ndim,))
    return lax.gather(self, places, numbers, (1,) * self.ndim, mode=IN_BOUNDS)


@rule("gather_backward", refuse=refuse_sparse)
def _gather_backward(
    ctx: RuleContext, grad: Array, self: Array, dim: int, index: Array, sparse_grad: bool
) -> Array:
    zeros = jnp.zeros(self.shape, grad.dtype)
    return _combine(ctx, zeros, dim, index, grad, "sum", True)


def _single(index: Array, self: Array, dim: int) -> Array | None:
    """Mask of what ``index`` names when it names one element of each row, else ``None``.

    One comparison with the positions along ``dim`` then replaces a scatter.
    """
    others = (size for axis, size in enumerate(self.shape) if axis != dim)
    indexed = (size for axis, size in enumerate(index.shape) if axis != dim)
    if index.shape[dim] != 1 or tuple(others) != tuple(indexed):
        return None
    places = lax.broadcasted_iota("int32", self.shape, dim)
    return places == narrowed(index, self.shape[dim])


def _set(self: Array, dim: int, index: Array, src: Array) -> Array:
    """``self`` with the elements named by ``index`` replaced; of doubles the last stays."""
    if index.size == 0:
        return self
    if 0 in (self.ndim, index.ndim, src.ndim):
        return _set(self.reshape(-1), 0, index.reshape(-1), src.reshape(-1)).reshape(self.shape)
    dim %= self.ndim
    src = _cut(src.astype(self.dtype), index.shape)
    named = _single(index, self, dim)
    if named is not None:
        return lax.select(named, jnp.broadcast_to(src, self.shape), self)
    return self.at[_key(index, self.shape, dim)].set(src, mode=IN_BOUNDS)


def _filled(self: Array, index: Array, value: Number) -> Array:
    return jnp.broadcast_to(jnp.asarray(value).astype(self.dtype), index.shape)


def _index_reduced(
    ctx: RuleContext, self: Array, dim: int, index: Array, source: Array, *how: Any
) -> Array:
    shape = self.shape
    self, source = (value.reshape(1) if value.ndim == 0 else value for value in (self, source))
    dim %= self.ndim
    key: Key = (*(slice(None),) * dim, narrowed(index.reshape(-1), self.shape[dim]))
    return _reduced(ctx, self, for_scatter(self.shape, key), source, *how).reshape(shape)


def _scattered(
    ctx: RuleContext,
    self: Array,
    dim: int,
    index: Array,
    src: Array,
    reduce: str | None,
    include_self: bool,
) -> Array:
    """Write or reduce ``src`` at the elements ``index`` names; 0-d tensors count as 1-d."""
    if reduce is None:
        return _set(self, dim, index, src)
    return _combine(ctx, self, dim, index, src, reduce, include_self)


register_scatter(rule, _scattered, _index_reduced, _filled)


def _combine(
    ctx: RuleContext,
    self: Array,
    dim: int,
    index: Array,
    src: Array,
    reduce: str,
    include_self: bool,
) -> Array:
    if index.size == 0:
        return self
    if 0 in (self.ndim, index.ndim, src.ndim):
        row, index, src = self.reshape(-1), index.reshape(-1), src.reshape(-1)
        done = _combine(ctx, row, 0, index, src, reduce, include_self)
        return done.reshape(self.shape)
    dim %= self.ndim
    src = _cut(src, index.shape)
    named = _single(index, self, dim)
    if named is not None and _REDUCTIONS[reduce] == "sum" and self.dtype != jnp.bool_:
        src = jnp.broadcast_to(src.astype(self.dtype), self.shape)
        total = self + src if include_self else src
        return lax.select(named, total, self)
    return _reduced(ctx, self, _key(index, self.shape, dim), src, reduce, include_self)


def _identity(dtype: np.dtype, reduction: str) -> Array:
    """What changes nothing when reduced with."""
    if reduction in ("sum", "mean", "prod"):
        return jnp.asarray(reduction == "prod", dtype)
    largest = reduction == "amin"
    if dtype == jnp.bool_:
        return jnp.asarray(largest)
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.asarray(jnp.inf if largest else -jnp.inf, dtype)
    limits = np.iinfo(dtype)
    return jnp.asarray(limits.max if largest else limits.min, dtype)


def _reduced(
    ctx: RuleContext, self: Array, key: Key, src: Array, reduce: str, include: bool
) -> Array:
    """Reduce ``src`` into the elements of ``self`` at ``key``; half precision in float32."""
    reduction, dtype = _REDUCTIONS[reduce], self.dtype
    wide = ctx.widened(self)
    src = src.astype(wide.dtype)
    counts: Array | None = None
    if reduction == "mean" or not include:
        counts = jnp.zeros(self.shape, "int32").at[key].add(1, mode=IN_BOUNDS)
    start = wide
    if not include and counts is not None:
        start = jnp.where(counts > 0, _identity(wide.dtype, reduction), wide)
    if dtype == jnp.bool_:
        # Sums and products of truth values are "or" and "and".
        reduction = "amin" if reduction in ("prod", "amin") else "amax"
    total: Array = getattr(start.at[key], _METHODS[reduction])(src, mode=IN_BOUNDS)
    if reduction == "mean" and counts is not None:
        number = jnp.maximum(counts + include, 1).astype(total.dtype)
        integral = jnp.issubdtype(total.dtype, jnp.integer)
        total = jnp.floor_divide(total, number) if integral else total / number
    return total.astype(dtype)


@rule("masked_scatter")
def _masked_scatter(ctx: RuleContext, self: Array, mask: Array, source: Array) -> Array:
    # The k-th True takes the k-th element of source: a running count says which.
    shape = ctx.out[0].shape
    self, mask = (jnp.broadcast_to(value, shape) for value in (self, mask))
    if source.size == 0:
        return self
    place = jnp.cumsum(mask.reshape(-1), dtype="int32") - 1
    values = take_along(source.reshape(-1), place, 0).reshape(shape)
    return lax.select(mask, values, self)


@rule("masked_scatter_backward")
def _masked_scatter_backward(
    ctx: RuleContext, grad_output: Array, mask: Array, sizes: tuple[int, ...]
) -> Array:
    shape = ctx.out[0].shape
    grad, mask = jnp.broadcast_arrays(grad_output, mask)
    size = 1
    for extent in shape:
        size *= extent
    taken = mask.reshape(-1)
    # Elements that are not taken are sent out of bounds, where a scatter drops them.
    place = jnp.where(taken, jnp.cumsum(taken, dtype="int32") - 1, size)
    zeros = jnp.zeros(size, grad.dtype)
    return zeros.at[place].set(grad.reshape(-1), mode="drop").reshape(shape)
