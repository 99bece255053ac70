"""Operators that take, replace or spread out a regular part of an array.

Every ``*_scatter`` form writes into a copy of ``self``, and every backward form adds or
writes its gradient into zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray
Sizes = tuple[int, ...]


def along(dim: int, rank: int, place: Any) -> tuple[Any, ...]:
    """The index that takes ``place`` of dimension ``dim`` and all of the others."""
    dim %= rank
    return (*(slice(None),) * dim, place)


def _zeros(ctx: RuleContext, like: Array) -> Array:
    return np.zeros(ctx.out[0].shape, like.dtype)


@rule("slice.Tensor", "slice_copy.Tensor")
def _slice(ctx: RuleContext, self: Array, dim: int, *place: int | None) -> Array:
    return self[along(dim, self.ndim, slice(*place))]


@rule("slice_backward")
def _slice_backward(
    ctx: RuleContext, grad: Array, input_sizes: Sizes, dim: int, start: int, end: int, step: int
) -> Array:
    result = _zeros(ctx, grad)
    result[along(dim, grad.ndim, slice(start, end, step))] = grad
    return result


@rule("slice_scatter")
def _slice_scatter(
    ctx: RuleContext, self: Array, src: Array, dim: int, *place: int | None
) -> Array:
    result = self.copy()
    result[along(dim, self.ndim, slice(*place))] = src
    return result


@rule("select.int", "select_copy.int")
def _select(ctx: RuleContext, self: Array, dim: int, index: int) -> Array:
    return self[along(dim, self.ndim, index)]


@rule("select_backward")
def _select_backward(
    ctx: RuleContext, grad: Array, input_sizes: Sizes, dim: int, index: int
) -> Array:
    result = _zeros(ctx, grad)
    result[along(dim, result.ndim, index)] = grad
    return result


@rule("select_scatter")
def _select_scatter(ctx: RuleContext, self: Array, src: Array, dim: int, index: int) -> Array:
    result = self.copy()
    result[along(dim, self.ndim, index)] = src
    return result


def _diagonal_of(value: Array, offset: int, dim1: int, dim2: int) -> Array:
    """The diagonal as a view, writable where ``value`` is; its dimension comes last."""
    view = np.diagonal(value, offset, dim1, dim2)
    view.flags.writeable = value.flags.writeable
    return view


@rule("diagonal", "diagonal_copy")
def _diagonal(ctx: RuleContext, self: Array, offset: int, dim1: int, dim2: int) -> Array:
    return np.diagonal(self, offset, dim1, dim2)


@rule("diagonal_scatter")
def _diagonal_scatter(
    ctx: RuleContext, self: Array, src: Array, offset: int, dim1: int, dim2: int
) -> Array:
    result = self.copy()
    _diagonal_of(result, offset, dim1, dim2)[...] = src
    return result


@rule("diagonal_backward")
def _diagonal_backward(
    ctx: RuleContext, grad: Array, input_sizes: Sizes, offset: int, dim1: int, dim2: int
) -> Array:
    result = _zeros(ctx, grad)
    _diagonal_of(result, offset, dim1, dim2)[...] = grad
    return result


@rule("diag_embed")
def _diag_embed(ctx: RuleContext, self: Array, offset: int, dim1: int, dim2: int) -> Array:
    result = _zeros(ctx, self)
    _diagonal_of(result, offset, dim1, dim2)[...] = self
    return result


@rule("trace")
def _trace(ctx: RuleContext, self: Array) -> Array:
    return np.asarray(np.trace(ctx.widened(self)))


@rule("trace_backward")
def _trace_backward(ctx: RuleContext, grad: Array, sizes: Sizes) -> Array:
    result = _zeros(ctx, grad)
    _diagonal_of(result, 0, 0, 1)[...] = grad
    return result


def _strided(value: Array, size: Sizes, stride: Sizes, offset: int | None) -> Array:
    """A view of dense ``value`` with the given sizes and strides, counted in elements."""
    rest = value.reshape(-1)[offset or 0 :]
    steps = [step * value.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(rest, size, steps)


@rule("as_strided", "as_strided_copy")
def _as_strided(
    ctx: RuleContext, self: Array, size: Sizes, stride: Sizes, storage_offset: int | None
) -> Array:
    return _strided(np.ascontiguousarray(self), size, stride, storage_offset)


@rule("as_strided_scatter")
def _as_strided_scatter(
    ctx: RuleContext,
    self: Array,
    src: Array,
    size: Sizes,
    stride: Sizes,
    storage_offset: int | None,
) -> Array:
    result = self.copy(order="C")
    _strided(result, size, stride, storage_offset)[...] = src
    return result


@rule("unfold", "unfold_copy")
def _unfold(ctx: RuleContext, self: Array, dimension: int, size: int, step: int) -> Array:
    """Windows of ``size`` elements, ``step`` apart, in place of ``dimension``; laid out last."""
    if self.ndim == 0:
        return self.reshape(1)[:size].reshape(ctx.out[0].shape)
    windows = np.lib.stride_tricks.sliding_window_view(self, size, dimension)
    return windows[along(dimension, self.ndim, slice(None, None, step))]


@rule("unfold_backward")
def _unfold_backward(
    ctx: RuleContext, grad_in: Array, input_sizes: Sizes, dim: int, size: int, step: int
) -> Array:
    grad = ctx.widened(grad_in)
    result = _zeros(ctx, grad)
    if result.ndim == 0:
        return result + np.sum(grad)
    span = (grad.shape[dim % result.ndim] - 1) * step + 1
    for tap in range(size):  # element ``tap`` of every window
        result[along(dim, result.ndim, slice(tap, tap + span, step))] += grad[..., tap]
    return result


def _clipped(diagonal: int) -> int:
    return max(min(diagonal, 2**31), -(2**31))


@rule("tril")
def _tril(ctx: RuleContext, self: Array, diagonal: int) -> Array:
    return np.tril(self, _clipped(diagonal))


@rule("triu")
def _triu(ctx: RuleContext, self: Array, diagonal: int) -> Array:
    return np.triu(self, _clipped(diagonal))
