"""XLA rules of batch normalisation, forward and backward, in the terms of ``normalization``."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.normalization import Mask, beside, channel_axes, register_batch_norm, wide
from fuse.backends.xla.rules.normalization import reciprocal_std
from fuse.backends.xla.rules.reduction import count, moments, number
from fuse.backends.xla.rules.registry import Number, RuleContext, rule


def _moved(running: jax.Array | None, new: jax.Array, momentum: Number) -> jax.Array | None:
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
    momentum: Number,
    eps: Number,
) -> tuple[jax.Array | None, ...]:
    """What ``register_batch_norm`` asks for."""
    x, weight, bias = wide(ctx, x, weight, bias)
    if training:
        axes, n = channel_axes(x.ndim), count(x, channel_axes(x.ndim))
        mean, deviation = (value.reshape(-1) for value in moments(x, axes))
        rstd = reciprocal_std(deviation / number(n, x.dtype), eps)
        running_mean = _moved(running_mean, mean, momentum)
        # The running variance is the unbiased one; of one value it is infinite or NaN.
        running_var = _moved(running_var, deviation / number(n - 1, x.dtype), momentum)
    else:
        assert running_mean is not None and running_var is not None
        mean = running_mean.astype(x.dtype)
        rstd = reciprocal_std(running_var.astype(x.dtype), eps)
    scale = rstd if weight is None else rstd * weight
    out = (x - beside(mean, x.ndim)) * beside(scale, x.ndim)
    out = out if bias is None else out + beside(bias, x.ndim)
    reserve = jnp.zeros((0,), jnp.uint8)
    saved = _saved(ctx, 1, mean), _saved(ctx, 2, rstd)
    return out, *saved, reserve, running_mean, running_var


register_batch_norm(rule, _batch_norm)


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
    eps: Number,
    mask: Mask,
) -> tuple[jax.Array | None, jax.Array | None, jax.Array | None]:
    grad, x, weight = wide(ctx, grad, x, weight)
    mean, rstd = (save_mean, save_rstd) if train else (running_mean, running_var)
    assert mean is not None and rstd is not None
    mean, rstd = mean.astype(x.dtype), rstd.astype(x.dtype)
    rstd = rstd if train else reciprocal_std(rstd, eps)
    axes, n = channel_axes(x.ndim), number(count(x, channel_axes(x.ndim)), x.dtype)
    centred = x - beside(mean, x.ndim)
    total, along = lax.reduce_sum(grad, axes), lax.reduce_sum(grad * centred, axes)
    through = grad
    if train:  # the weight, one number a channel, comes last: two sums serve all three gradients
        slope = along * rstd * rstd / n
        through = grad - beside(total / n, x.ndim) - centred * beside(slope, x.ndim)
    through = through * beside(rstd if weight is None else rstd * weight, x.ndim)
    return (
        through if mask[0] else None,
        along * rstd if mask[1] else None,
        total if mask[2] else None,
    )
