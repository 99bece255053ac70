"""NumPy rules of layer, group, batch, RMS and weight normalisation, forward and backward.

All of them reduce in float32 for half precision, in two passes (mean, then squared deviations).
The gradients share one form: with xhat = (x - mean) * rstd and gw = grad * weight, the input's
gradient is rstd * (gw - mean(gw) - xhat * mean(gw * xhat)).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.reduction import add_up, count, moments
from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray
Mask = tuple[bool, ...]


def _wide(ctx: RuleContext, *values: Array | None) -> list[Any]:
    """Operands in the dtype statistics are computed in: that of the first, half widened."""
    first = values[0]
    assert first is not None
    dtype = ctx.widened(first).dtype
    return [None if value is None else value.astype(dtype) for value in values]


def _reciprocal_std(variance: Array, eps: float) -> Array:
    return 1 / np.sqrt(variance + variance.dtype.type(eps))


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    """Mean over ``axes``, which are kept; of nothing, NaN."""
    return add_up(x, axes, keepdims=True) / x.dtype.type(count(x, axes))


def _normalised_moments(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array]:
    """Mean and reciprocal standard deviation (without correction), with ``axes`` kept."""
    mean, deviation = moments(x, axes)
    return mean, _reciprocal_std(deviation / x.dtype.type(count(x, axes)), eps)


def _input_gradient(weighted: Array, normal: Array, rstd: Array, axes: tuple[int, ...]) -> Array:
    """The input's gradient from grad * weight and xhat, when mean and rstd depend on it."""
    return rstd * (weighted - _mean(weighted, axes) - normal * _mean(weighted * normal, axes))


# --- layer and RMS normalisation -----------------------------------------------------


def _split(x: Array, normalized: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Axes outside and inside ``normalized_shape``."""
    first = x.ndim - len(normalized)
    return tuple(range(first)), tuple(range(first, x.ndim))


@rule("native_layer_norm")
def _layer_norm(
    ctx: RuleContext,
    x: Array,
    normalized: tuple[int, ...],
    weight: Array | None,
    bias: Array | None,
    eps: float,
) -> Any:
    x, weight, bias = _wide(ctx, x, weight, bias)
    mean, rstd = _normalised_moments(x, _split(x, normalized)[1], eps)
    out = (x - mean) * rstd
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, rstd


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
) -> Any:
    grad, x, mean, rstd, weight = _wide(ctx, grad, x, mean, rstd, weight)
    outer, inner = _split(x, normalized)
    normal = (x - mean) * rstd
    weighted = grad if weight is None else grad * weight
    return (
        _input_gradient(weighted, normal, rstd, inner) if mask[0] else None,
        add_up(grad * normal, outer) if mask[1] else None,
        add_up(grad, outer) if mask[2] else None,
    )


@rule("_fused_rms_norm")
def _rms_norm(
    ctx: RuleContext,
    x: Array,
    normalized: tuple[int, ...],
    weight: Array | None,
    eps: float | None,
) -> Any:
    x, weight = _wide(ctx, x, weight)
    # Without eps PyTorch takes the machine epsilon of the dtype it computes in.
    eps = float(np.finfo(x.dtype).eps) if eps is None else eps
    rstd = _reciprocal_std(_mean(x * x, _split(x, normalized)[1]), eps)
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
) -> Any:
    grad, x, rstd, weight = _wide(ctx, grad, x, rstd, weight)
    outer, inner = _split(x, normalized)
    normal = x * rstd
    weighted = grad if weight is None else grad * weight
    return (
        rstd * (weighted - normal * _mean(weighted * normal, inner)) if mask[0] else None,
        add_up(grad * normal, outer) if mask[1] else None,
    )


# --- group normalisation -------------------------------------------------------------


def _by_channel(parameter: Array, group: int) -> Array:
    """[C] as [1, group, C / group, 1], beside an input seen as [N, group, C / group, HxW]."""
    return parameter.reshape(1, group, parameter.size // group, 1)


@rule("native_group_norm")
def _group_norm(
    ctx: RuleContext,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    n: int,
    channels: int,
    pixels: int,
    group: int,
    eps: float,
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
    grad: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
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
        add_up(grad * normal, (0, 3)).reshape(channels) if mask[1] else None,
        add_up(grad, (0, 3)).reshape(channels) if mask[2] else None,
    )


# --- batch normalisation -------------------------------------------------------------


def _channel_axes(x: Array) -> tuple[int, ...]:
    return tuple(axis for axis in range(x.ndim) if axis != 1)


def _beside(parameter: Array, x: Array) -> Array:
    """[C] reshaped to broadcast along dimension 1 of ``x``."""
    return parameter.reshape((1, parameter.size) + (1,) * (x.ndim - 2))


def _moved(running: Array | None, new: Array, momentum: float) -> Array | None:
    """The exponential average of a statistic, in its own dtype; ``None`` when not kept."""
    if running is None:
        return None
    step = new.dtype.type(momentum)
    return convert(running.astype(new.dtype) * (1 - step) + new * step, running.dtype.name)


def _saved(ctx: RuleContext, k: int, value: Array) -> Array:
    """A saved statistic as result ``k``; PyTorch's CPU kernel saves none when not training."""
    return value.reshape(-1) if ctx.out[k].shape != (0,) else value[:0]


def _batch_norm(
    ctx: RuleContext,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """Output, saved mean, saved reciprocal deviation, new running mean, new running variance."""
    x, weight, bias = _wide(ctx, x, weight, bias)
    if training:
        axes = _channel_axes(x)
        n = count(x, axes)
        mean, deviation = (value.reshape(-1) for value in moments(x, axes))
        rstd = _reciprocal_std(deviation / x.dtype.type(n), eps)
        running_mean = _moved(running_mean, mean, momentum)
        # The running variance is the unbiased one; of one value it is infinite or NaN.
        running_var = _moved(running_var, deviation / x.dtype.type(n - 1), momentum)
    else:
        assert running_mean is not None
        assert running_var is not None
        mean = running_mean.astype(x.dtype)
        rstd = _reciprocal_std(running_var.astype(x.dtype), eps)
    scale = rstd if weight is None else rstd * weight
    out = (x - _beside(mean, x)) * _beside(scale, x)
    out = out if bias is None else out + _beside(bias, x)
    return out, _saved(ctx, 1, mean), _saved(ctx, 2, rstd), running_mean, running_var


@rule("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional")
def _batch_norm_with_statistics(ctx: RuleContext, *arguments: Any) -> Any:
    """The three results, then the new running mean and variance (``None`` if absent).

    ``native_batch_norm`` writes its arguments 3 and 4 when it trains though its schema does not
    say so: ``fuse.trace.hidden_writes`` tells the engine which.
    """
    return _batch_norm(ctx, *arguments)


@rule("_batch_norm_with_update", "_batch_norm_with_update_functional")
def _batch_norm_with_update(
    ctx: RuleContext,
    x: Array,
    weight: Any,
    bias: Any,
    running_mean: Array,
    running_var: Array,
    momentum: float,
    eps: float,
) -> Any:
    """The three results, an empty reserve, and the new running mean and variance."""
    arguments = (x, weight, bias, running_mean, running_var, True, momentum, eps)
    out, mean, rstd, *moved = _batch_norm(ctx, *arguments)
    return out, mean, rstd, np.zeros(0, np.uint8), *moved


@rule("_native_batch_norm_legit.no_stats")
def _batch_norm_without_statistics(
    ctx: RuleContext, x: Array, weight: Any, bias: Any, training: bool, momentum: Any, eps: Any
) -> Any:
    # Without running statistics there is nothing but the batch's own to normalise with.
    return _batch_norm(ctx, x, weight, bias, None, None, True, momentum, eps)[:3]


@rule("_native_batch_norm_legit_no_training")
def _batch_norm_inference(
    ctx: RuleContext,
    x: Array,
    weight: Any,
    bias: Any,
    running_mean: Array,
    running_var: Array,
    momentum: Any,
    eps: Any,
) -> Any:
    arguments = (x, weight, bias, running_mean, running_var, False, momentum, eps)
    return _batch_norm(ctx, *arguments)[:3]


@rule("native_batch_norm_backward")
def _batch_norm_backward(
    ctx: RuleContext,
    grad: Array,
    x: Array,
    weight: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    save_mean: Array | None,
    save_rstd: Array | None,
    train: bool,
    eps: float,
    mask: Mask,
) -> Any:
    grad, x, weight = _wide(ctx, grad, x, weight)
    mean, rstd = (save_mean, save_rstd) if train else (running_mean, running_var)
    assert mean is not None
    assert rstd is not None
    mean, rstd = (_beside(value.astype(x.dtype), x) for value in (mean, rstd))
    rstd = rstd if train else _reciprocal_std(rstd, eps)
    normal = (x - mean) * rstd
    weighted = grad if weight is None else grad * _beside(weight, x)
    axes = _channel_axes(x)
    through = _input_gradient(weighted, normal, rstd, axes) if train else weighted * rstd
    return (
        through if mask[0] else None,
        add_up(grad * normal, axes) if mask[1] else None,
        add_up(grad, axes) if mask[2] else None,
    )


# --- weight normalisation ------------------------------------------------------------


def _axes_but(x: Array, dim: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(x.ndim) if axis != dim % x.ndim)


@rule("_weight_norm_interface")
def _weight_norm(ctx: RuleContext, v: Array, g: Array, dim: int = 0) -> Any:
    v, g = _wide(ctx, v, g)
    norm = np.sqrt(add_up(v * v, _axes_but(v, dim), keepdims=True))
    return v * (g / norm), norm


@rule("_weight_norm_interface_backward")
def _weight_norm_backward(
    ctx: RuleContext, grad: Array, v: Array, g: Array, norm: Array, dim: int
) -> Any:
    shape = g.shape
    grad, v, g, norm = _wide(ctx, grad, v, g, norm)
    along = add_up(grad * v, _axes_but(v, dim), keepdims=True)
    grad_v = g / norm * (grad - v * (along / (norm * norm)))
    return grad_v, (along / norm).reshape(shape)
