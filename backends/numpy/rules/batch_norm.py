"""NumPy rules of batch normalisation, forward and backward, in the terms of ``normalization``."""

from __future__ import annotations

import numpy as np

from fuse.backends.normalization import Mask, beside, channel_axes, register_batch_norm, wide
from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.normalization import input_gradient, reciprocal_std
from fuse.backends.numpy.rules.reduction import add_up, count, moments
from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray


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
) -> tuple[Array | None, ...]:
    """What ``register_batch_norm`` asks for."""
    x, weight, bias = wide(ctx, x, weight, bias)
    if training:
        axes = channel_axes(x.ndim)
        n = count(x, axes)
        mean, deviation = (value.reshape(-1) for value in moments(x, axes))
        rstd = reciprocal_std(deviation / x.dtype.type(n), eps)
        running_mean = _moved(running_mean, mean, momentum)
        # The running variance is the unbiased one; of one value it is infinite or NaN.
        running_var = _moved(running_var, deviation / x.dtype.type(n - 1), momentum)
    else:
        assert running_mean is not None
        assert running_var is not None
        mean = running_mean.astype(x.dtype)
        rstd = reciprocal_std(running_var.astype(x.dtype), eps)
    scale = rstd if weight is None else rstd * weight
    out = (x - beside(mean, x.ndim)) * beside(scale, x.ndim)
    out = out if bias is None else out + beside(bias, x.ndim)
    reserve = np.zeros(0, np.uint8)
    saved = _saved(ctx, 1, mean), _saved(ctx, 2, rstd)
    return out, *saved, reserve, running_mean, running_var


register_batch_norm(rule, _batch_norm)


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
) -> tuple[Array | None, Array | None, Array | None]:
    grad, x, weight = wide(ctx, grad, x, weight)
    mean, rstd = (save_mean, save_rstd) if train else (running_mean, running_var)
    assert mean is not None
    assert rstd is not None
    mean, rstd = (beside(value.astype(x.dtype), x.ndim) for value in (mean, rstd))
    rstd = rstd if train else reciprocal_std(rstd, eps)
    normal = (x - mean) * rstd
    weighted = grad if weight is None else grad * beside(weight, x.ndim)
    axes = channel_axes(x.ndim)
    through = input_gradient(weighted, normal, rstd, axes) if train else weighted * rstd
    return (
        through if mask[0] else None,
        add_up(grad * normal, axes) if mask[1] else None,
        add_up(grad, axes) if mask[2] else None,
    )
