"""XLA rules of layer, group, batch, RMS and weight normalisation, forward and backward.

All of them reduce in float32 for half precision, in two passes (mean, then squared
deviations). The gradients share one form: with xhat = (x - mean) * rstd and
gw = grad * weight, the input's gradient is rstd * (gw - mean(gw) - xhat * mean(gw * xhat)).
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.backends.xla.rules.reduction import count, kept, moments, number
from fuse.backends.xla.rules.registry import RuleContext, rule

Mask = tuple[bool, ...]

_LIBRARY_NUMBERS = 1 << 15  # in a layer norm, from which on PyTorch's kernel is called


def _wide(ctx: RuleContext, *values: jax.Array | None) -> list[Any]:
    """Operands in the dtype statistics are computed in: that of the first, half widened."""
    first = values[0]
    assert first is not None
    dtype = ctx.widened(first).dtype
    return [None if value is None else value.astype(dtype) for value in values]


def _reciprocal_std(variance: jax.Array, eps: Any) -> jax.Array:
    return lax.rsqrt(variance + number(eps, variance.dtype))


def _mean(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Mean over ``axes``, which are kept; of nothing, NaN."""
    return kept(x, lax.reduce_sum(x, axes) / number(count(x, axes), x.dtype), axes)


def _normalised_moments(
    x: jax.Array, axes: tuple[int, ...], eps: Any
) -> tuple[jax.Array, jax.Array]:
    """Mean and reciprocal standard deviation (without correction), with ``axes`` kept."""
    mean, deviation = moments(x, axes)
    return mean, _reciprocal_std(deviation / number(count(x, axes), x.dtype), eps)


def _input_gradient(
    weighted: jax.Array, normal: jax.Array, rstd: jax.Array, axes: tuple[int, ...]
) -> jax.Array:
    """The input's gradient from grad * weight and xhat, when mean and rstd depend on it."""
    return rstd * (weighted - _mean(weighted, axes) - normal * _mean(weighted * normal, axes))


# --- layer and RMS normalisation -----------------------------------------------------


def _split(x: jax.Array, normalized: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Axes outside and inside ``normalized_shape``."""
    first = x.ndim - len(normalized)
    return tuple(range(first)), tuple(range(first, x.ndim))


@rule("native_layer_norm")
def _layer_norm(
    ctx: RuleContext,
    x: jax.Array,
    normalized: tuple[int, ...],
    weight: jax.Array | None,
    bias: jax.Array | None,
    eps: Any,
) -> Any:
    given = [value for value in (weight, bias) if value is not None]
    if isinstance(eps, float) and _by_library(ctx, x, *given):
        return _library(ctx, x, normalized, weight, bias, eps)
    x, weight, bias = _wide(ctx, x, weight, bias)
    mean, rstd = _normalised_moments(x, _split(x, normalized)[1], eps)
    out = (x - mean) * rstd
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, rstd


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
) -> Any:
    if weight is not None and mask[0] and _by_library(ctx, grad, x, mean, rstd, weight):
        grads = _library_gradient(ctx, grad, x, mean, rstd, weight)
        return tuple(value if wanted else None for value, wanted in zip(grads, mask, strict=True))
    grad, x, mean, rstd, weight = _wide(ctx, grad, x, mean, rstd, weight)
    outer, inner = _split(x, normalized)
    normal = (x - mean) * rstd
    weighted = grad if weight is None else grad * weight
    return (
        _input_gradient(weighted, normal, rstd, inner) if mask[0] else None,
        lax.reduce_sum(grad * normal, outer) if mask[1] else None,
        lax.reduce_sum(grad, outer) if mask[2] else None,
    )


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
) -> Any:
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
    inner = _split(x, normalized)[1]
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
    eps: Any,
) -> Any:
    x, weight = _wide(ctx, x, weight)
    # Without eps PyTorch takes the machine epsilon of the dtype it computes in.
    eps = float(np.finfo(x.dtype).eps) if eps is None else eps
    rstd = _reciprocal_std(_mean(x * x, _split(x, normalized)[1]), eps)
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
) -> Any:
    grad, x, rstd, weight = _wide(ctx, grad, x, rstd, weight)
    outer, inner = _split(x, normalized)
    normal = x * rstd
    weighted = grad if weight is None else grad * weight
    return (
        rstd * (weighted - normal * _mean(weighted * normal, inner)) if mask[0] else None,
        lax.reduce_sum(grad * normal, outer) if mask[1] else None,
    )


# --- group normalisation -------------------------------------------------------------


def _by_channel(parameter: jax.Array, group: int) -> jax.Array:
    """[C] as [1, group, C / group, 1], beside an input seen as [N, group, C / group, HxW]."""
    return parameter.reshape(1, group, -1 if parameter.size else 0, 1)


@rule("native_group_norm")
def _group_norm(
    ctx: RuleContext,
    x: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    n: int,
    channels: int,
    pixels: int,
    group: int,
    eps: Any,
) -> Any:
    shape = x.shape
    x, weight, bias = _wide(ctx, x, weight, bias)
    x = x.reshape(n, group, channels // group, pixels)
    mean, rstd = _normalised_moments(x, (2, 3), eps)
    out = (x - mean) * rstd
    out = out if weight is None else out * _by_channel(weight, group)
    out = out if bias is None else out + _by_channel(bias, group)
    return out.reshape(shape), mean.reshape(n, group), rstd.reshape(n, group)


@rule("native_group_norm_backward")
def _group_norm_backward(
    ctx: RuleContext,
    grad: jax.Array,
    x: jax.Array,
    mean: jax.Array,
    rstd: jax.Array,
    weight: jax.Array | None,
    n: int,
    channels: int,
    pixels: int,
    group: int,
    mask: Mask,
) -> Any:
    shape = x.shape
    grad, x, mean, rstd, weight = _wide(ctx, grad, x, mean, rstd, weight)
    grad, x = (value.reshape(n, group, channels // group, pixels) for value in (grad, x))
    mean, rstd = (value.reshape(n, group, 1, 1) for value in (mean, rstd))
    normal = (x - mean) * rstd
    weighted = grad if weight is None else grad * _by_channel(weight, group)
    return (
        _input_gradient(weighted, normal, rstd, (2, 3)).reshape(shape) if mask[0] else None,
        lax.reduce_sum(grad * normal, (0, 3)).reshape(channels) if mask[1] else None,
        lax.reduce_sum(grad, (0, 3)).reshape(channels) if mask[2] else None,
    )


# --- batch normalisation -------------------------------------------------------------


def _channel_axes(x: jax.Array) -> tuple[int, ...]:
    return tuple(axis for axis in range(x.ndim) if axis != 1)


def _beside(parameter: jax.Array, x: jax.Array) -> jax.Array:
    """[C] reshaped to broadcast along dimension 1 of ``x``."""
    return parameter.reshape((1, -1 if parameter.size else 0) + (1,) * (x.ndim - 2))


def _moved(running: jax.Array | None, new: jax.Array, momentum: Any) -> jax.Array | None:
    """The exponential average of a statistic, in its own dtype; ``None`` when not kept."""
    if running is None:
        return None
    step = number(momentum, new.dtype)
    return (running.astype(new.dtype) * (1 - step) + new * step).astype(running.dtype)


def _saved(ctx: RuleContext, k: int, value: jax.Array) -> jax.Array:
    """A saved statistic as result ``k``; PyTorch's CPU kernel saves none when not training."""
    shape = ctx.out[k].shape
    return value.reshape(-1) if shape != (0,) else jnp.zeros((0,), value.dtype)


def _batch_norm(
    ctx: RuleContext,
    x: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    running_mean: jax.Array | None,
    running_var: jax.Array | None,
    training: bool,
    momentum: Any,
    eps: Any,
) -> tuple[Any, ...]:
    """Output, saved mean, saved reciprocal deviation, new running mean, new running variance."""
    x, weight, bias = _wide(ctx, x, weight, bias)
    if training:
        axes, n = _channel_axes(x), count(x, _channel_axes(x))
        mean, deviation = (value.reshape(-1) for value in moments(x, axes))
        rstd = _reciprocal_std(deviation / number(n, x.dtype), eps)
        running_mean = _moved(running_mean, mean, momentum)
        # The running variance is the unbiased one; of one value it is infinite or NaN.
        running_var = _moved(running_var, deviation / number(n - 1, x.dtype), momentum)
    else:
        assert running_mean is not None and running_var is not None
        mean = running_mean.astype(x.dtype)
        rstd = _reciprocal_std(running_var.astype(x.dtype), eps)
    scale = rstd if weight is None else rstd * weight
    out = (x - _beside(mean, x)) * _beside(scale, x)
    out = out if bias is None else out + _beside(bias, x)
    return out, _saved(ctx, 1, mean), _saved(ctx, 2, rstd), running_mean, running_var


@rule("native_batch_norm")
def _native_batch_norm(ctx: RuleContext, *arguments: Any) -> Any:
    """The schema's three results, then the new running mean and variance (``None`` if absent).

    The operator writes its arguments 3 and 4 when it trains though its schema does not
    say so: ``fuse.trace.hidden_writes`` tells the engine which.
    """
    return _batch_norm(ctx, *arguments)


@rule("_native_batch_norm_legit", "_native_batch_norm_legit_functional")
def _batch_norm_with_statistics(ctx: RuleContext, *arguments: Any) -> Any:
    """The three results, then the new running mean and variance.

    For the in-place overload these two are the new values of its written arguments.
    """
    return _batch_norm(ctx, *arguments)


@rule("_batch_norm_with_update", "_batch_norm_with_update_functional")
def _batch_norm_with_update(
    ctx: RuleContext,
    x: jax.Array,
    weight: Any,
    bias: Any,
    running_mean: jax.Array,
    running_var: jax.Array,
    momentum: Any,
    eps: Any,
) -> Any:
    """The three results, an empty reserve, and the new running mean and variance."""
    arguments = (x, weight, bias, running_mean, running_var, True, momentum, eps)
    out, mean, rstd, *moved = _batch_norm(ctx, *arguments)
    return out, mean, rstd, jnp.zeros((0,), jnp.uint8), *moved


@rule("_native_batch_norm_legit.no_stats")
def _batch_norm_without_statistics(
    ctx: RuleContext, x: jax.Array, weight: Any, bias: Any, training: bool, momentum: Any, eps: Any
) -> Any:
    # Without running statistics there is nothing but the batch's own to normalise with.
    return _batch_norm(ctx, x, weight, bias, None, None, True, momentum, eps)[:3]


@rule("_native_batch_norm_legit_no_training")
def _batch_norm_inference(
    ctx: RuleContext,
    x: jax.Array,
    weight: Any,
    bias: Any,
    running_mean: jax.Array,
    running_var: jax.Array,
    momentum: Any,
    eps: Any,
) -> Any:
    arguments = (x, weight, bias, running_mean, running_var, False, momentum, eps)
    return _batch_norm(ctx, *arguments)[:3]


@rule("native_batch_norm_backward")
def _batch_norm_backward(
    ctx: RuleContext,
    grad: jax.Array,
    x: jax.Array,
    weight: jax.Array | None,
    running_mean: jax.Array | None,
    running_var: jax.Array | None,
    save_mean: jax.Array | None,
    save_rstd: jax.Array | None,
    train: bool,
    eps: Any,
    mask: Mask,
) -> Any:
    grad, x, weight = _wide(ctx, grad, x, weight)
    mean, rstd = (save_mean, save_rstd) if train else (running_mean, running_var)
    assert mean is not None and rstd is not None
    mean, rstd = mean.astype(x.dtype), rstd.astype(x.dtype)
    rstd = rstd if train else _reciprocal_std(rstd, eps)
    axes, n = _channel_axes(x), number(count(x, _channel_axes(x)), x.dtype)
    centred = x - _beside(mean, x)
    total, along = lax.reduce_sum(grad, axes), lax.reduce_sum(grad * centred, axes)
    through = grad
    if train:  # the weight, one number a channel, comes last: two sums serve all three gradients
        slope = along * rstd * rstd / n
        through = grad - _beside(total / n, x) - centred * _beside(slope, x)
    through = through * _beside(rstd if weight is None else rstd * weight, x)
    return (
        through if mask[0] else None,
        along * rstd if mask[1] else None,
        total if mask[2] else None,
    )


# --- weight normalisation ------------------------------------------------------------


def _axes_but(x: jax.Array, dim: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(x.ndim) if axis != dim % x.ndim)


@rule("_weight_norm_interface")
def _weight_norm(ctx: RuleContext, v: jax.Array, g: jax.Array, dim: int = 0) -> Any:
    v, g = _wide(ctx, v, g)
    axes = _axes_but(v, dim)
    norm = kept(v, lax.sqrt(lax.reduce_sum(v * v, axes)), axes)
    return v * (g / norm), norm


@rule("_weight_norm_interface_backward")
def _weight_norm_backward(
    ctx: RuleContext, grad: jax.Array, v: jax.Array, g: jax.Array, norm: jax.Array, dim: int
) -> Any:
    shape = g.shape
    grad, v, g, norm = _wide(ctx, grad, v, g, norm)
    axes = _axes_but(v, dim)
    along = kept(v, lax.reduce_sum(grad * v, axes), axes)
    grad_v = g / norm * (grad - v * (along / (norm * norm)))
    return grad_v, (along / norm).reshape(shape)
