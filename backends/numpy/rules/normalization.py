"""NumPy rules of layer, group, RMS and weight normalisation, forward and backward.

All of them reduce in float32 for half precision, in two passes (mean, then squared deviations).
The gradients share one form: with xhat = (x - mean) * rstd and gw = grad * weight, the input's
gradient is rstd * (gw - mean(gw) - xhat * mean(gw * xhat)).
"""

from __future__ import annotations

import numpy as np

from fuse.backends.normalization import Mask, axes_but, register_group_norm, split, wide
from fuse.backends.numpy.rules.reduction import add_up, count, moments
from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray


def reciprocal_std(variance: Array, eps: float) -> Array:
    """One over the standard deviation, of a variance and what keeps it from 0."""
    return 1 / np.sqrt(variance + variance.dtype.type(eps))


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    """Mean over ``axes``, which are kept; of nothing, NaN."""
    return add_up(x, axes, keepdims=True) / x.dtype.type(count(x, axes))


def _normalised_moments(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array]:
    """Mean and reciprocal standard deviation (without correction), with ``axes`` kept."""
    mean, deviation = moments(x, axes)
    return mean, reciprocal_std(deviation / x.dtype.type(count(x, axes)), eps)


def input_gradient(weighted: Array, normal: Array, rstd: Array, axes: tuple[int, ...]) -> Array:
    """The input's gradient from grad * weight and xhat, when mean and rstd depend on it."""
    return rstd * (weighted - _mean(weighted, axes) - normal * _mean(weighted * normal, axes))


def _normalised(
    x: Array, weight: Array | None, bias: Array | None, axes: tuple[int, ...], eps: float
) -> tuple[Array, Array, Array]:
    mean, rstd = _normalised_moments(x, axes, eps)
    out = (x - mean) * rstd
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, rstd


def _gradients(
    grad: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    inner: tuple[int, ...],
    outer: tuple[int, ...],
    mask: Mask,
) -> tuple[Array | None, Array | None, Array | None]:
    normal = (x - mean) * rstd
    weighted = grad if weight is None else grad * weight
    return (
        input_gradient(weighted, normal, rstd, inner) if mask[0] else None,
        add_up(grad * normal, outer) if mask[1] else None,
        add_up(grad, outer) if mask[2] else None,
    )


# --- layer and RMS normalisation -----------------------------------------------------


@rule("native_layer_norm")
def _layer_norm(
    ctx: RuleContext,
    x: Array,
    normalized: tuple[int, ...],
    weight: Array | None,
    bias: Array | None,
    eps: float,
) -> tuple[Array, Array, Array]:
    x, weight, bias = wide(ctx, x, weight, bias)
    return _normalised(x, weight, bias, split(x.ndim, normalized)[1], eps)


@rule("native_layer_norm_backward")
def _layer_norm_backward(
    ctx: RuleContext,
    grad: Array,
    x: Array,
    normalized: tuple[int, ...],
    mean: Array,
    rstd: Array,
    weight: Array | None,
    bias: Array | None,
    mask: Mask,
) -> tuple[Array | None, Array | None, Array | None]:
    grad, x, mean, rstd, weight = wide(ctx, grad, x, mean, rstd, weight)
    outer, inner = split(x.ndim, normalized)
    return _gradients(grad, x, mean, rstd, weight, inner, outer, mask)


@rule("_fused_rms_norm")
def _rms_norm(
    ctx: RuleContext,
    x: Array,
    normalized: tuple[int, ...],
    weight: Array | None,
    eps: float | None,
) -> tuple[Array, Array]:
    x, weight = wide(ctx, x, weight)
    # Without eps PyTorch takes the machine epsilon of the dtype it computes in.
    eps = float(np.finfo(x.dtype).eps) if eps is None else eps
    rstd = reciprocal_std(_mean(x * x, split(x.ndim, normalized)[1]), eps)
    return x * rstd if weight is None else x * rstd * weight, rstd


@rule("_fused_rms_norm_backward")
def _rms_norm_backward(
    ctx: RuleContext,
    grad: Array,
    x: Array,
    normalized: tuple[int, ...],
    rstd: Array,
    weight: Array | None,
    mask: Mask,
) -> tuple[Array | None, Array | None]:
    grad, x, rstd, weight = wide(ctx, grad, x, rstd, weight)
    outer, inner = split(x.ndim, normalized)
    normal = x * rstd
    weighted = grad if weight is None else grad * weight
    return (
        rstd * (weighted - normal * _mean(weighted * normal, inner)) if mask[0] else None,
        add_up(grad * normal, outer) if mask[1] else None,
    )


# --- group normalisation -------------------------------------------------------------


register_group_norm(rule, _normalised, _gradients)


# --- weight normalisation ------------------------------------------------------------


@rule("_weight_norm_interface")
def _weight_norm(ctx: RuleContext, v: Array, g: Array, dim: int = 0) -> tuple[Array, Array]:
    v, g = wide(ctx, v, g)
    norm = np.sqrt(add_up(v * v, axes_but(v.ndim, dim), keepdims=True))
    return v * (g / norm), norm


@rule("_weight_norm_interface_backward")
def _weight_norm_backward(
    ctx: RuleContext, grad: Array, v: Array, g: Array, norm: Array, dim: int
) -> tuple[Array, Array]:
    shape = g.shape
    grad, v, g, norm = wide(ctx, grad, v, g, norm)
    along = add_up(grad * v, axes_but(v.ndim, dim), keepdims=True)
    grad_v = g / norm * (grad - v * (along / (norm * norm)))
    return grad_v, (along / norm).reshape(shape)
