"""XLA rules of layer, group, RMS and weight normalisation, forward and backward.

All of them reduce in float32 for half precision, in two passes (mean, then squared
deviations). The gradients share one form: with xhat = (x - mean) * rstd and
gw = grad * weight, the input's gradient is rstd * (gw - mean(gw) - xhat * mean(gw * xhat)).
"""

from __future__ import annotations

import math

import jax
import numpy as np
from jax import lax

from fuse.backends.normalization import Mask, axes_but, register_group_norm, split, wide
from fuse.backends.xla.rules.reduction import count, kept, moments, number
from fuse.backends.xla.rules.registry import Number, RuleContext, rule

_LIBRARY_NUMBERS = 1 << 15  # in a layer norm, from which on PyTorch's kernel is called


def reciprocal_std(variance: jax.Array, eps: Number) -> jax.Array:
    """One over the standard deviation, of a variance and what keeps it from 0."""
    return lax.rsqrt(variance + number(eps, variance.dtype))


def _mean(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Mean over ``axes``, which are kept; of nothing, NaN."""
    return kept(x, lax.reduce_sum(x, axes) / number(count(x, axes), x.dtype), axes)


def _normalised_moments(
    x: jax.Array, axes: tuple[int, ...], eps: Number
) -> tuple[jax.Array, jax.Array]:
    """Mean and reciprocal standard deviation (without correction), with ``axes`` kept."""
    mean, deviation = moments(x, axes)
    return mean, reciprocal_std(deviation / number(count(x, axes), x.dtype), eps)


def input_gradient(
    weighted: jax.Array, normal: jax.Array, rstd: jax.Array, axes: tuple[int, ...]
) -> jax.Array:
    """The input's gradient from grad * weight and xhat, when mean and rstd depend on it."""
    return rstd * (weighted - _mean(weighted, axes) - normal * _mean(weighted * normal, axes))


def _normalised(
    x: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    axes: tuple[int, ...],
    eps: Number,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    mean, rstd = _normalised_moments(x, axes, eps)
    out = (x - mean) * rstd
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, rstd


def _gradients(
    grad: jax.Array,
    x: jax.Array,
    mean: jax.Array,
    rstd: jax.Array,
    weight: jax.Array | None,
    inner: tuple[int, ...],
    outer: tuple[int, ...],
    mask: Mask,
) -> tuple[jax.Array | None, jax.Array | None, jax.Array | None]:
    normal = (x - mean) * rstd
    weighted = grad if weight is None else grad * weight
    return (
        input_gradient(weighted, normal, rstd, inner) if mask[0] else None,
        lax.reduce_sum(grad * normal, outer) if mask[1] else None,
        lax.reduce_sum(grad, outer) if mask[2] else None,
    )


# --- layer and RMS normalisation -----------------------------------------------------


@rule("native_layer_norm")
def _layer_norm(
    ctx: RuleContext,
    x: jax.Array,
    normalized: tuple[int, ...],
    weight: jax.Array | None,
    bias: jax.Array | None,
    eps: Number,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    given = [value for value in (weight, bias) if value is not None]
    if isinstance(eps, float) and _by_library(ctx, x, *given):
        return _library(ctx, x, normalized, weight, bias, eps)
    x, weight, bias = wide(ctx, x, weight, bias)
    return _normalised(x, weight, bias, split(x.ndim, normalized)[1], eps)


@rule("native_layer_norm_backward")
def _layer_norm_backward(
    ctx: RuleContext,
    grad: jax.Array,
    x: jax.Array,
    normalized: tuple[int, ...],
    mean: jax.Array,
    rstd: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    mask: Mask,
) -> tuple[jax.Array | None, ...]:
    if weight is not None and mask[0] and _by_library(ctx, grad, x, mean, rstd, weight):
        grads = _library_gradient(ctx, grad, x, mean, rstd, weight)
        return tuple(value if wanted else None for value, wanted in zip(grads, mask, strict=True))
    grad, x, mean, rstd, weight = wide(ctx, grad, x, mean, rstd, weight)
    outer, inner = split(x.ndim, normalized)
    return _gradients(grad, x, mean, rstd, weight, inner, outer, mask)


def _by_library(ctx: RuleContext, *values: jax.Array) -> bool:
    """Whether PyTorch's CPU kernel can be called, on enough numbers to make up for the call."""
    return ctx.platform.has_kernel("layer_norm", *values) and values[0].size >= _LIBRARY_NUMBERS


def _library(
    ctx: RuleContext,
    x: jax.Array,
    normalized: tuple[int, ...],
    weight: jax.Array | None,
    bias: jax.Array | None,
    eps: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    width = math.prod(normalized)
    rows = x.reshape(-1, width)
    sums = jax.ShapeDtypeStruct((rows.shape[0], 1), x.dtype)
    out, mean, rstd = ctx.platform.call(
        "layer_norm",
        (jax.ShapeDtypeStruct(rows.shape, x.dtype), sums, sums),
        rows,
        rows if weight is None else weight.reshape(width),
        rows if bias is None else bias.reshape(width),
        weighted=weight is not None,
        biased=bias is not None,
        eps=eps,
    )
    inner = split(x.ndim, normalized)[1]
    return out.reshape(x.shape), kept(x, mean, inner), kept(x, rstd, inner)


def _library_gradient(
    ctx: RuleContext,
    grad: jax.Array,
    x: jax.Array,
    mean: jax.Array,
    rstd: jax.Array,
    weight: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    rows = jax.ShapeDtypeStruct((x.size // weight.size, weight.size), x.dtype)
    sums = jax.ShapeDtypeStruct((weight.size,), x.dtype)
    grad_x, grad_weight, grad_bias = ctx.platform.call(
        "layer_norm_gradient",
        (rows, sums, sums),
        *(value.reshape(rows.shape) for value in (grad, x)),
        *(value.reshape(-1, 1) for value in (mean, rstd)),
        weight.reshape(-1),
    )
    return (
        grad_x.reshape(x.shape),
        grad_weight.reshape(weight.shape),
        grad_bias.reshape(weight.shape),
    )


@rule("_fused_rms_norm")
def _rms_norm(
    ctx: RuleContext,
    x: jax.Array,
    normalized: tuple[int, ...],
    weight: jax.Array | None,
    eps: Number,
) -> tuple[jax.Array, jax.Array]:
    x, weight = wide(ctx, x, weight)
    # Without eps PyTorch takes the machine epsilon of the dtype it computes in.
    eps = float(np.finfo(x.dtype).eps) if eps is None else eps
    rstd = reciprocal_std(_mean(x * x, split(x.ndim, normalized)[1]), eps)
    out = x * rstd
    return out if weight is None else out * weight, rstd


@rule("_fused_rms_norm_backward")
def _rms_norm_backward(
    ctx: RuleContext,
    grad: jax.Array,
    x: jax.Array,
    normalized: tuple[int, ...],
    rstd: jax.Array,
    weight: jax.Array | None,
    mask: Mask,
) -> tuple[jax.Array | None, jax.Array | None]:
    grad, x, rstd, weight = wide(ctx, grad, x, rstd, weight)
    outer, inner = split(x.ndim, normalized)
    normal = x * rstd
    weighted = grad if weight is None else grad * weight
    return (
        rstd * (weighted - normal * _mean(weighted * normal, inner)) if mask[0] else None,
        lax.reduce_sum(grad * normal, outer) if mask[1] else None,
    )


# --- group normalisation -------------------------------------------------------------


register_group_norm(rule, _normalised, _gradients)


# --- weight normalisation ------------------------------------------------------------


@rule("_weight_norm_interface")
def _weight_norm(
    ctx: RuleContext, v: jax.Array, g: jax.Array, dim: int = 0
) -> tuple[jax.Array, jax.Array]:
    v, g = wide(ctx, v, g)
    axes = axes_but(v.ndim, dim)
    norm = kept(v, lax.sqrt(lax.reduce_sum(v * v, axes)), axes)
    return v * (g / norm), norm


@rule("_weight_norm_interface_backward")
def _weight_norm_backward(
    ctx: RuleContext, grad: jax.Array, v: jax.Array, g: jax.Array, norm: jax.Array, dim: int
) -> tuple[jax.Array, jax.Array]:
    shape = g.shape
    grad, v, g, norm = wide(ctx, grad, v, g, norm)
    axes = axes_but(v.ndim, dim)
    along = kept(v, lax.reduce_sum(grad * v, axes), axes)
    grad_v = g / norm * (grad - v * (along / (norm * norm)))
    return grad_v, (along / norm).reshape(shape)
