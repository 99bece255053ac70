"""NumPy rules of reductions: sums, extrema, truth values, variances and norms."""

from __future__ import annotations

import math

import numpy as np

from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.elementwise import is_complex, is_float, is_nan
from fuse.backends.numpy.rules.registry import RuleContext, rule
from fuse.backends.reduction import (
    Dims,
    axes_of,
    register_extrema,
    register_norms,
    register_variances,
    truth_axes,
)

Array = np.ndarray


def count(x: Array, axes: tuple[int, ...]) -> int:
    """Number of elements that one reduction over ``axes`` takes in."""
    return math.prod(x.shape[axis] for axis in axes)


def _shaped(ctx: RuleContext, value: Array, k: int = 0) -> Array:
    return np.asarray(value).reshape(ctx.out[k].shape)


def _accumulated(ctx: RuleContext, x: Array) -> Array:
    """The input in the result's dtype (casts come before the sum), half widened."""
    return ctx.widened(convert(x, ctx.out[0].dtype))


def add_up(x: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The sum over ``axes``, in the dtype of ``x``: of bool, whether any is true."""
    # Float sums are made in float64: NumPy adds pairwise along the fastest axis only, where
    # PyTorch's cascade sum holds its digits along any.
    wide = np.float64 if x.dtype == np.float32 else x.dtype
    return np.sum(x, axis=axes, dtype=wide, keepdims=keepdims).astype(x.dtype)


# --- sums and products ---------------------------------------------------------------


@rule("sum", "sum.dim_IntList")
def _sum(
    ctx: RuleContext, x: Array, dim: Dims = None, keepdim: bool = False, *, dtype: str | None = None
) -> Array:
    return _shaped(ctx, add_up(_accumulated(ctx, x), axes_of(dim, x.ndim)))


@rule("nansum")
def _nansum(
    ctx: RuleContext, x: Array, dim: Dims = None, keepdim: bool = False, *, dtype: str | None = None
) -> Array:
    return _sum(ctx, np.where(is_nan(x), convert(0, x.dtype.name), x), dim)


@rule("mean", "mean.dim")
def _mean(
    ctx: RuleContext, x: Array, dim: Dims = None, keepdim: bool = False, *, dtype: str | None = None
) -> Array:
    total = add_up(_accumulated(ctx, x), axes_of(dim, x.ndim))
    size = count(x, axes_of(dim, x.ndim))
    return _shaped(ctx, total / total.dtype.type(size))  # 0 / 0 is NaN, as in ATen


@rule("prod", "prod.dim_int")
def _prod(
    ctx: RuleContext, x: Array, dim: Dims = None, keepdim: bool = False, *, dtype: str | None = None
) -> Array:
    wide = _accumulated(ctx, x)
    return _shaped(ctx, np.prod(wide, axis=axes_of(dim, x.ndim), dtype=wide.dtype))


def _refuse_hash_modes(*_arguments: object, mode: int = 0, **_options: object) -> str | None:
    return None if mode == 0 else f"hash mode {mode}"


@rule("hash_tensor", refuse=_refuse_hash_modes)
def _hash_tensor(
    ctx: RuleContext, x: Array, dim: Dims = (), *, keepdim: bool = False, mode: int = 0
) -> Array:
    """Exclusive or of the elements' bits: as float64, as int64 or as bool."""
    bits = convert(x, "float64" if is_float(x) else "int64").view(np.uint64)
    return _shaped(ctx, np.bitwise_xor.reduce(bits, axis=axes_of(dim, x.ndim)))


@rule("count_nonzero", "count_nonzero.dim_IntList")
def _count_nonzero(ctx: RuleContext, x: Array, dim: Dims = None) -> Array:
    return _shaped(ctx, np.sum(convert(x, "bool"), axis=axes_of(dim, x.ndim)))


# --- truth values: NaN is true -------------------------------------------------------


@rule("any", "any.dim", "any.dims", "_is_any_true")
def _any(ctx: RuleContext, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    return _shaped(ctx, np.any(convert(x, "bool"), axis=truth_axes(dim, x.ndim)))


@rule("all", "all.dim", "all.dims", "_is_all_true")
def _all(ctx: RuleContext, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    return _shaped(ctx, np.all(convert(x, "bool"), axis=truth_axes(dim, x.ndim)))


# --- extrema: NaN wins ---------------------------------------------------------------


def maximum(x: Array, axes: tuple[int, ...]) -> Array:
    """Largest element over ``axes``, which are kept."""
    return np.maximum.reduce(x, axis=axes, keepdims=True)


def minimum(x: Array, axes: tuple[int, ...]) -> Array:
    """Smallest element over ``axes``, which are kept."""
    return np.minimum.reduce(x, axis=axes, keepdims=True)


def first_index(x: Array, value: Array, axis: int) -> Array:
    """Index along ``axis``, kept, of the first element equal to ``value``, or of the first NaN."""
    return np.argmax((x == value) | is_nan(x), axis=axis, keepdims=True)


register_extrema(rule, {"max": maximum, "min": minimum}, first_index, _shaped)


# --- variance ------------------------------------------------------------------------


def squared(x: Array) -> Array:
    """|x|^2, real for complex input."""
    return x.real * x.real + x.imag * x.imag if is_complex(x) else x * x


def moments(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Mean and sum of squared deviations over ``axes``, both with the axes kept.

    Two passes: the one-pass form (mean of squares less square of the mean) loses all digits
    when the mean is large beside the deviation.
    """
    mean = add_up(x, axes, keepdims=True) / x.dtype.type(count(x, axes))
    return mean, add_up(squared(x - mean), axes, keepdims=True)


def _variance(
    ctx: RuleContext, x: Array, axes: tuple[int, ...], correction: float
) -> tuple[Array, Array]:
    mean, deviation = moments(x, axes)
    # A correction of n or more divides by zero (aten/src/ATen/native/SharedReduceOps.h).
    left = max(count(x, axes) - correction, 0)
    return deviation / deviation.dtype.type(left), mean


register_variances(rule, _variance, np.sqrt, _shaped)


# --- norms ---------------------------------------------------------------------------


def vector_norm(x: Array, order: float, axes: tuple[int, ...]) -> Array:
    """The ``order``-norm over ``axes``, which are kept; real, half must be widened."""
    size = np.abs(x)
    if order == 2:
        return np.sqrt(add_up(squared(x), axes, keepdims=True))
    if order == 0:
        return add_up((x != 0).astype(size.dtype), axes, keepdims=True)
    if math.isinf(order):
        if count(x, axes) == 0:
            return np.zeros([1 if i in axes else s for i, s in enumerate(x.shape)], size.dtype)
        return (maximum if order > 0 else minimum)(size, axes)
    total = add_up(np.power(size, size.dtype.type(order)), axes, keepdims=True)
    return np.power(total, size.dtype.type(1 / order))


def _norm(
    ctx: RuleContext, x: Array, order: float, axes: tuple[int, ...], dtype: str | None
) -> Array:
    wide = ctx.widened(convert(x, dtype or x.dtype.name))
    return _shaped(ctx, vector_norm(wide, float(order), axes))


register_norms(rule, _norm)


@rule("renorm")
def _renorm(ctx: RuleContext, x: Array, p: float, dim: int, maxnorm: float) -> Array:
    wide = ctx.widened(x)
    axes = tuple(axis for axis in range(x.ndim) if axis != dim % x.ndim)
    norm = vector_norm(wide, float(p), axes)
    limit = norm.dtype.type(maxnorm)
    # The 1e-7 is ATen's (native/Normalization.cpp, renorm_scale_factor).
    return wide * np.where(norm > limit, limit / (norm + norm.dtype.type(1e-7)), 1)


@rule("logsumexp")
def _logsumexp(ctx: RuleContext, x: Array, dim: Dims, keepdim: bool = False) -> Array:
    wide = _accumulated(ctx, x)
    axes = axes_of(dim, x.ndim)
    largest = np.max(wide.real, axis=axes, keepdims=True, initial=-math.inf)
    largest = np.where(np.isfinite(largest), largest, 0)
    total = add_up(np.exp(wide - largest), axes, keepdims=True)
    return _shaped(ctx, np.log(total) + largest)
