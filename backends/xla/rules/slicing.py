"""Operators that take, replace or spread out a regular part of an array.

Slices, diagonals and windows, their ``*_scatter`` forms, and their backward forms, which
write a gradient into zeros. Where the part is regular only in memory (diagonals, strided
views) the view resolution does the work: a rule's operand is a dense row-major array.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.xla.rules.padding import transposed
from fuse.backends.xla.rules.registry import Number, RuleContext, Unsupported, rule
from fuse.backends.xla.views import read, write
from fuse.trace.node import Node
from fuse.trace.spec import Layout, View, contiguous_strides

Array = jax.Array
Sizes = tuple[int, ...]
_UNROLLED_WINDOWS = 32  # up to so many slices beat one gather or scatter


def _layout(value: Array) -> Layout:
    return Layout(str(value.dtype), value.shape)


def _zero(value: Array) -> Array:
    return jnp.zeros((), value.dtype)


@rule("slice.Tensor", "slice_copy.Tensor")
def _slice(ctx: RuleContext, self: Array, dim: int, *place: int | None) -> Array:
    begin, stop, step = slice(*place).indices(self.shape[dim])
    return lax.slice_in_dim(self, begin, max(begin, stop), step, dim)


@rule("select.int", "select_copy.int")
def _select(ctx: RuleContext, self: Array, dim: int, index: int) -> Array:
    return lax.index_in_dim(self, index, dim, keepdims=False)


def _spread(value: Array, shape: Sizes, dim: int, place: slice) -> Array:
    """Zeros of ``shape`` with ``value`` at ``place`` (a slice) along ``dim``.

    A place that varies is that of elements one beside the other.
    """
    varies = isinstance(place.start, jax.Array)
    begin, _, step = (place.start, None, 1) if varies else place.indices(shape[dim])
    size = value.shape[dim]
    if size == 0:
        return jnp.zeros(shape, value.dtype)
    if not isinstance(begin, int):
        return lax.dynamic_update_slice_in_dim(jnp.zeros(shape, value.dtype), value, begin, dim)
    config = [(0, 0, 0)] * value.ndim
    config[dim] = (begin, shape[dim] - begin - (size - 1) * step - 1, step - 1)
    return lax.pad(value, _zero(value), config)


def _varies(node: Node) -> bool:
    return bool(node.dynamic)


@rule("slice_backward", may_refuse=_varies)
def _slice_backward(
    ctx: RuleContext,
    grad_output: Array,
    input_sizes: Sizes,
    dim: int,
    start: int | Array,
    end: int | Array,
    step: int,
) -> Array:
    dim %= grad_output.ndim
    shape = ctx.out[0].shape
    if isinstance(start, jax.Array) or isinstance(end, jax.Array):
        if step != 1:
            raise Unsupported("a place that varies, of elements that do not lie together")
        start = _from_start(start, shape[dim])
    return _spread(grad_output, shape, dim, slice(start, end, step))


def _from_start(index: int | Array, size: int) -> Array:
    """An index, which may count from the end, as one from the start."""
    return jnp.asarray(jnp.where(index < 0, index + size, index))


@rule("select_backward")
def _select_backward(
    ctx: RuleContext, grad_output: Array, input_sizes: Sizes, dim: int, index: int | Array
) -> Array:
    shape = ctx.out[0].shape
    dim %= len(shape)
    place = slice(index % shape[dim], None)  # % of an array has the sign of the size, too
    return _spread(lax.expand_dims(grad_output, (dim,)), shape, dim, place)


def _write_along(ctx: RuleContext, self: Array, src: Array, dim: int, place: slice) -> Array:
    begin, stop, step = place.indices(self.shape[dim])
    strides = list(contiguous_strides(self.shape))
    shape = list(self.shape)
    shape[dim] = max(0, -(-(stop - begin) // step))
    offset = begin * strides[dim]
    strides[dim] *= step
    return _write(ctx, self, src, View(str(self.dtype), tuple(shape), tuple(strides), offset))


def _write(ctx: RuleContext, self: Array, src: Array, view: View) -> Array:
    value = jnp.broadcast_to(src.astype(self.dtype), view.shape)
    layout = _layout(self)
    # The platform's is right where ``src`` is made of ``self``, too.
    made = ctx.platform.update(self, view, value) if view.is_part(layout) else None
    return write(self, layout, view, value) if made is None else made


@rule("slice_scatter")
def _slice_scatter(
    ctx: RuleContext, self: Array, src: Array, dim: int, *place: int | None
) -> Array:
    return _write_along(ctx, self, src, dim % self.ndim, slice(*place))


@rule("select_scatter")
def _select_scatter(
    ctx: RuleContext, self: Array, src: Array, dim: int, index: int | Array
) -> Array:
    dim %= self.ndim
    index = index % self.shape[dim]
    if isinstance(index, jax.Array):
        row = lax.expand_dims(src.astype(self.dtype), (dim,))
        return lax.dynamic_update_slice_in_dim(self, row, index, dim)
    return _write_along(ctx, self, lax.expand_dims(src, (dim,)), dim, slice(index, index + 1))


def _diagonal_view(dtype: str, shape: Sizes, offset: int, dim1: int, dim2: int) -> View:
    dim1, dim2 = dim1 % len(shape), dim2 % len(shape)
    strides = contiguous_strides(shape)
    below, above = max(-offset, 0), max(offset, 0)
    length = max(min(shape[dim1] - below, shape[dim2] - above), 0)
    start = below * strides[dim1] + above * strides[dim2] if length else 0
    rest = [dim for dim in range(len(shape)) if dim not in (dim1, dim2)]
    sizes = (*(shape[dim] for dim in rest), length)
    steps = (*(strides[dim] for dim in rest), strides[dim1] + strides[dim2])
    return View(dtype, sizes, steps, start)


@rule("diagonal", "diagonal_copy")
def _diagonal(ctx: RuleContext, self: Array, offset: int, dim1: int, dim2: int) -> Array:
    view = _diagonal_view(str(self.dtype), self.shape, offset, dim1, dim2)
    return read(self, _layout(self), view)


@rule("diagonal_scatter")
def _diagonal_scatter(
    ctx: RuleContext, self: Array, src: Array, offset: int, dim1: int, dim2: int
) -> Array:
    return _write(ctx, self, src, _diagonal_view(str(self.dtype), self.shape, offset, dim1, dim2))


def _write_diagonal(value: Array, shape: Sizes, offset: int, dim1: int, dim2: int) -> Array:
    view = _diagonal_view(str(value.dtype), shape, offset, dim1, dim2)
    return write(None, Layout(str(value.dtype), shape), view, value)


@rule("diagonal_backward")
def _diagonal_backward(
    ctx: RuleContext, grad_output: Array, input_sizes: Sizes, offset: int, dim1: int, dim2: int
) -> Array:
    return _write_diagonal(grad_output, ctx.out[0].shape, offset, dim1, dim2)


@rule("diag_embed")
def _diag_embed(ctx: RuleContext, self: Array, offset: int, dim1: int, dim2: int) -> Array:
    return _write_diagonal(self, ctx.out[0].shape, offset, dim1, dim2)


@rule("trace")
def _trace(ctx: RuleContext, self: Array) -> Array:
    view = _diagonal_view(str(self.dtype), self.shape, 0, 0, 1)
    diagonal = ctx.widened(read(self, _layout(self), view))
    return jnp.sum(diagonal.astype(jnp.promote_types(diagonal.dtype, ctx.out[0].dtype)))


@rule("trace_backward")
def _trace_backward(ctx: RuleContext, grad: Array, sizes: Sizes) -> Array:
    diagonal = jnp.broadcast_to(grad, (min(sizes),))
    return _write_diagonal(diagonal, sizes, 0, 0, 1)


@rule("as_strided", "as_strided_copy")
def _as_strided(
    ctx: RuleContext, self: Array, size: Sizes, stride: Sizes, storage_offset: int | None
) -> Array:
    view = View(str(self.dtype), tuple(size), tuple(stride), storage_offset or 0)
    return read(self, _layout(self), view)


@rule("as_strided_scatter")
def _as_strided_scatter(
    ctx: RuleContext,
    self: Array,
    src: Array,
    size: Sizes,
    stride: Sizes,
    storage_offset: int | None,
) -> Array:
    view = View(str(self.dtype), tuple(size), tuple(stride), storage_offset or 0)
    return _write(ctx, self, src, view)


def _windows(self: Array, dim: int, size: int, step: int) -> Array:
    """``[..., n, ...]`` to ``[..., windows, ..., size]``, the windows in place of ``dim``."""
    count = (self.shape[dim] - size) // step + 1
    if size <= count:
        span = (count - 1) * step + 1
        parts = [lax.slice_in_dim(self, k, k + span, step, dim) for k in range(size)]
        return jnp.stack(parts, axis=-1)
    parts = [lax.slice_in_dim(self, k * step, k * step + size, 1, dim) for k in range(count)]
    return jnp.moveaxis(jnp.stack(parts, axis=dim), dim + 1, -1)


@rule("unfold", "unfold_copy")
def _unfold(ctx: RuleContext, self: Array, dimension: int, size: int, step: int) -> Array:
    if self.ndim == 0:
        return lax.reshape(lax.slice_in_dim(self.reshape(1), 0, size, axis=0), ctx.out[0].shape)
    dim = dimension % self.ndim
    count = (self.shape[dim] - size) // step + 1
    if size == step and size * count == self.shape[dim]:
        tiled = lax.reshape(self, (*self.shape[:dim], count, size, *self.shape[dim + 1 :]))
        return jnp.moveaxis(tiled, dim + 1, -1)
    if min(size, count) <= _UNROLLED_WINDOWS and self.size and size:
        return _windows(self, dim, size, step)
    strides = list(contiguous_strides(self.shape))
    shape = (*self.shape[:dim], count, *self.shape[dim + 1 :], size)
    strides = [*strides, strides[dim]]
    strides[dim] *= step
    return read(self, _layout(self), View(str(self.dtype), shape, tuple(strides)))


@rule("unfold_backward")
def _unfold_backward(
    ctx: RuleContext, grad_in: Array, input_sizes: Sizes, dim: int, size: int, step: int
) -> Array:
    grad, shape = ctx.widened(grad_in), ctx.out[0].shape
    if not shape:
        return jnp.sum(grad).reshape(shape)
    dim %= len(shape)
    if grad.size == 0:
        return jnp.zeros(shape, grad.dtype)
    if min(size, grad.shape[dim]) <= _UNROLLED_WINDOWS:
        return transposed(lambda x: _windows(x, dim, size, step), shape, grad)
    rows = jnp.moveaxis(grad, (dim, -1), (0, 1))
    index = jnp.arange(grad.shape[dim])[:, None] * step + jnp.arange(size)
    rest = (*shape[:dim], *shape[dim + 1 :])
    summed = jnp.zeros((shape[dim], *rest), grad.dtype).at[index].add(rows)
    return jnp.moveaxis(summed, 0, dim)


def _band(self: Array, diagonal: Number, *, lower: bool) -> Array:
    """Keep the elements on one side of a diagonal, zero elsewhere."""
    rows = lax.broadcasted_iota("int32", self.shape[-2:], 0)
    columns = lax.broadcasted_iota("int32", self.shape[-2:], 1)
    edge = rows + jnp.clip(diagonal, -(2**30), 2**30).astype(jnp.int32)
    kept = columns <= edge if lower else columns >= edge
    mask = lax.broadcast_in_dim(kept, self.shape, (self.ndim - 2, self.ndim - 1))
    return lax.select(mask, self, lax.full_like(self, 0))


@rule("tril")
def _tril(ctx: RuleContext, self: Array, diagonal: Number) -> Array:
    return _band(self, diagonal, lower=True)


@rule("triu")
def _triu(ctx: RuleContext, self: Array, diagonal: Number) -> Array:
    return _band(self, diagonal, lower=False)
