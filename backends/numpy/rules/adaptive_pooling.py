"""Fractional pooling, and unpooling."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from fuse.backends.numpy.rules.pooling import scatter
from fuse.backends.numpy.rules.registry import RuleContext, rule
from fuse.backends.numpy.rules.windows import merged

Array = np.ndarray


@rule("max_unpool2d", "max_unpool3d")
def _unpool(
    ctx: RuleContext, x: Array, indices: Array, sizes: tuple[int, ...], *_window: tuple[int, ...]
) -> Array:
    """Zeros of ``sizes`` with every ``x`` where its index says; leading dims independent."""
    lead = x.shape[: x.ndim - len(sizes)]
    result = np.zeros((*lead, math.prod(sizes)), x.dtype)
    np.put_along_axis(result, merged(indices, len(sizes)), merged(x, len(sizes)), -1)
    return result.reshape(*lead, *sizes)


def _fractional_starts(sample: Array, size: int, out: int, kernel: int) -> Array:
    """Window starts ``[*, out]`` from one uniform sample each (Graham, arXiv:1412.6071)."""
    last = np.full((*sample.shape, 1), size - kernel)
    if out == 1:
        return last
    alpha = sample.dtype.type((size - kernel) / (out - 1))
    steps = np.arange(out - 1, dtype=sample.dtype)
    starts = np.trunc((steps + sample[..., None]) * alpha) - np.trunc(sample * alpha)[..., None]
    return np.concatenate([starts.astype(np.int64), last], -1)


def _fractional(
    order: tuple[int, ...],
    ctx: RuleContext,
    x: Array,
    kernel: tuple[int, ...],
    output_size: tuple[int, ...],
    samples: Array,
) -> tuple[Array, Array]:
    """``order[d]`` is the column of ``samples`` that places the windows of dimension ``d``."""
    dims = len(output_size)
    lead, sizes = x.shape[:-dims], x.shape[-dims:]
    samples = samples.reshape(*lead, dims) if x.ndim > dims + 1 else samples[0]
    flat = merged(x, dims)
    window = [max(taps, 1) for taps in kernel]  # one without elements is where it starts
    place = np.zeros((*lead, *(1,) * dims, *(1,) * dims), np.int64)  # [*, *output, *window]
    for dim, (size, out, taps) in enumerate(zip(sizes, output_size, kernel, strict=True)):
        starts = _fractional_starts(samples[..., order[dim]], size, out, taps)
        own = starts[..., None] + np.arange(window[dim])
        shape = [1] * (2 * dims)
        shape[dim], shape[dims + dim] = out, window[dim]
        place = place * size + own.reshape(*lead, *shape)
    place = place.reshape(*ctx.out[0].shape, math.prod(window))
    # In full, not -1: an empty batch leaves NumPy nothing to work the number out from.
    wanted = place.reshape(*lead, math.prod(place.shape[len(lead) :]))
    if 0 in kernel:
        value = np.full(place.shape, -np.inf, x.dtype)
    else:
        value = np.take_along_axis(flat, wanted, -1).reshape(place.shape)
    chosen = _last_nan_or_first_maximum(value)[..., None]
    return (
        np.take_along_axis(value, chosen, -1)[..., 0],
        np.take_along_axis(place, chosen, -1)[..., 0],
    )


def _last_nan_or_first_maximum(value: Array) -> Array:
    """Which element along the last dimension a pooling window keeps."""
    nan = value != value
    last = value.shape[-1] - 1 - np.argmax(nan[..., ::-1], -1)
    return np.where(nan.any(-1), last, np.argmax(value, -1))


@rule("fractional_max_pool2d_backward", "fractional_max_pool3d_backward")
def _fractional_backward(
    ctx: RuleContext,
    grad: Array,
    x: Array,
    kernel: tuple[int, ...],
    output_size: tuple[int, ...],
    indices: Array,
) -> Array:
    return scatter(ctx.widened(grad), indices, x.shape[-len(output_size) :])


rule("fractional_max_pool2d")(partial(_fractional, (1, 0)))
rule("fractional_max_pool3d")(partial(_fractional, (0, 1, 2)))
