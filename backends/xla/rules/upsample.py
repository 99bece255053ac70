"""Resampling to another size: nearest, linear, cubic and antialiased, with gradients.

Every method is a weighted sum of source elements along one dimension after another
(``fuse.backends.resampling``), and the gradient is the transposed sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fuse.backends.resampling import Array, Axis, axes
from fuse.backends.xla.rules.registry import RuleContext, Unsupported, of_integers, rule


def _apply(how: Axis, x: jax.Array, axis: int) -> jax.Array:
    if how.weights is None:
        return _picked(how, x, axis, how.index[0])
    shape = [1] * x.ndim
    shape[axis] = -1
    total: jax.Array | None = None
    for index, weight in zip(how.index, how.weights, strict=True):
        picked = _picked(how, x, axis, index)
        term = picked * jnp.asarray(weight, x.dtype).reshape(shape)
        total = term if total is None else total + term
    assert total is not None
    return total


def _picked(how: Axis, x: jax.Array, axis: int, index: Array) -> jax.Array:
    if len(index) == how.size and (index == np.arange(how.size)).all():
        return x
    times = len(index) // how.size
    if len(index) == times * how.size and (index == np.arange(len(index)) // times).all():
        return jnp.repeat(x, times, axis=axis)  # a broadcast, where a gather would cost more
    return jnp.take(x, index, axis=axis, mode="clip")


def _resample(x: jax.Array, how: Sequence[Axis]) -> jax.Array:
    # The last dimension first: the others then move whole rows.
    for number, axis in reversed(list(enumerate(how))):
        x = _apply(axis, x, x.ndim - len(how) + number)
    return x


def _resample_gradient(grad: jax.Array, shape: Sequence[int], how: Sequence[Axis]) -> jax.Array:
    like = jnp.zeros(tuple(shape), grad.dtype)
    if grad.size == 0:
        return like
    (result,) = jax.linear_transpose(lambda value: _resample(value, how), like)(grad)
    gradient: jax.Array = result
    return gradient


def _check_dtype(method: str, x: jax.Array) -> None:
    if not method.startswith("nearest") and not jnp.issubdtype(x.dtype, jnp.floating):
        raise Unsupported("interpolation of integers, which PyTorch rounds in its own way")


def _upsample(
    method: str, ctx: RuleContext, x: jax.Array, output_size: tuple[int, ...], *args: Any
) -> jax.Array:
    _check_dtype(method, x)
    if x.size == 0:
        return jnp.zeros(ctx.out[0].shape, x.dtype)
    dims = len(output_size)
    wide = x if method.startswith("nearest") else ctx.widened(x)
    return _resample(wide, axes(method, x.shape[-dims:], output_size, args, x.dtype == jnp.float64))


def _upsample_vec(
    method: str,
    ctx: RuleContext,
    x: jax.Array,
    output_size: tuple[int, ...] | None,
    *args: Any,
) -> jax.Array:
    """The overloads that take an optional size and a list of scale factors."""
    *align, factors = args
    sizes = ctx.out[0].shape[2:]
    scales = tuple(factors) if factors is not None else (None,) * len(sizes)
    return _upsample(method, ctx, x, sizes, *align, *scales)


def _upsample_backward(
    method: str,
    ctx: RuleContext,
    grad: jax.Array,
    output_size: tuple[int, ...],
    input_size: tuple[int, ...],
    *args: Any,
) -> jax.Array:
    _check_dtype(method, grad)
    if math.prod(input_size) == 0:
        return jnp.zeros(input_size, grad.dtype)
    dims = len(output_size)
    double = grad.dtype == jnp.float64
    how = axes(method, input_size[-dims:], output_size, args, double, backward=True)
    return _resample_gradient(ctx.widened(grad), input_size, how)


for _method in (
    "nearest1d", "nearest2d", "nearest3d", "nearest_exact1d", "nearest_exact2d",
    "nearest_exact3d", "linear1d", "bilinear2d", "trilinear3d", "bicubic2d",
    "bilinear2d_aa", "bicubic2d_aa", "lanczos2d_aa",
):  # fmt: skip
    _private = "_" if "exact" in _method or _method.endswith("_aa") else ""
    rule(f"{_private}upsample_{_method}", may_refuse=of_integers)(partial(_upsample, _method))
    rule(f"{_private}upsample_{_method}.vec", may_refuse=of_integers)(
        partial(_upsample_vec, _method)
    )
    rule(f"{_private}upsample_{_method}_backward", may_refuse=of_integers)(
        partial(_upsample_backward, _method)
    )
