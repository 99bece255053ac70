"""Convolutions of one to three dimensions, transposed or not, and their gradients.

One bilinear form defines them all. For every place ``k`` in the kernel and position ``p`` of
the result, with ``q = p * stride - padding + k * dilation``,

    correlate:   y[n, o, p] += x[n, c, q] * w[o, c, k]
    spread:      x[n, c, q] += y[n, o, p] * w[o, c, k]
    pair:        w[o, c, k] += x[n, c, q] * y[n, o, p]

The convolution is the first line, and the others are its gradients. The transposed
convolution is the second line, and the first and third are its gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fuse.backends.convolution import Window, backward, backward_overrideable, forward
from fuse.backends.numpy.rules.registry import RuleContext, rule
from fuse.backends.numpy.rules.windows import cropped, padded, taps

Array = np.ndarray
Gradients = tuple[Array | None, Array | None, Array | None]


def _places(window: Window, y: Array, w: Array) -> Iterator[tuple[Any, Any]]:
    """For every place in the kernel: its index into ``w``, and what it reads of ``x``."""
    places = taps(y.shape[2:], w.shape[2:], window.stride, window.dilation)
    return (((..., *place), under) for place, under in places)


def _grouped(value: Array, axis: int, groups: int) -> Array:
    """Split the channels at ``axis`` into ``[groups, channels of one group]``."""
    shape = value.shape
    return value.reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


def _columns(value: Array, groups: int) -> Array:
    """``[n, c, *spatial]`` as ``[n, g, c / g, positions]``."""
    positions = int(np.prod(value.shape[2:]))
    return value.reshape(value.shape[0], groups, value.shape[1] // groups, positions)


def correlate(x: Array, w: Array, window: Window, shape: Sequence[int]) -> Array:
    """The convolution ``y`` of ``shape``: ``x[n, c, *q]`` with ``w[o, c / groups, *k]``."""
    source, weights = padded(x, window.padding), _grouped(w, 0, window.groups)
    y = np.zeros(shape, x.dtype)
    total = _columns(y, window.groups)
    for place, under in _places(window, y, w):
        total += weights[place] @ _columns(source[under], window.groups)
    return y


def spread(y: Array, w: Array, window: Window, shape: Sequence[int]) -> Array:
    """The transpose of ``correlate`` in ``x``, which has ``shape``."""
    full = padded(np.zeros(shape, y.dtype), window.padding)
    values, weights = _columns(y, window.groups), _grouped(w, 0, window.groups)
    for place, under in _places(window, y, w):
        part = weights[place].swapaxes(-1, -2) @ values
        full[under] += part.reshape(full[under].shape)
    return cropped(full, window.padding)


def pair(x: Array, y: Array, window: Window, shape: Sequence[int]) -> Array:
    """The transpose of ``correlate`` in ``w``, which has ``shape``."""
    source, values = padded(x, window.padding), _columns(y, window.groups)
    w = np.zeros(shape, x.dtype)
    for place, under in _places(window, y, w):
        products = values @ _columns(source[under], window.groups).swapaxes(-1, -2)
        w[place] = products.sum(axis=0).reshape(w[place].shape)
    return w


@rule("convolution", "convolution_overrideable")
@forward
def _convolution(
    ctx: RuleContext, x: Array, weight: Array, bias: Array | None, window: Window
) -> Array:
    apply = spread if window.transposed else correlate
    result = apply(ctx.widened(x), ctx.widened(weight), window, ctx.out[0].shape)
    if bias is None:
        return result
    return result + bias.astype(result.dtype).reshape(-1, *(1,) * (x.ndim - 2))


def _gradients(
    ctx: RuleContext, grad: Array, x: Array, weight: Array, window: Window, mask: tuple[bool, ...]
) -> Gradients:
    """Gradients of input, weight and bias; ``None`` where the mask asks for none."""
    grad, x, weight = (ctx.widened(operand) for operand in (grad, x, weight))
    grad_input = grad_weight = grad_bias = None
    if mask[0]:
        apply = correlate if window.transposed else spread
        grad_input = apply(grad, weight, window, x.shape)
    if mask[1]:
        large, small = (grad, x) if window.transposed else (x, grad)
        grad_weight = pair(large, small, window, weight.shape)
    if mask[2]:
        grad_bias = grad.sum(axis=(0, *range(2, grad.ndim)))
    return grad_input, grad_weight, grad_bias


rule("convolution_backward")(backward(_gradients))
rule("convolution_backward_overrideable")(backward_overrideable(_gradients))


@rule("conv_tbc")
def _conv_tbc(ctx: RuleContext, x: Array, weight: Array, bias: Array, pad: int = 0) -> Array:
    """Convolution of ``x[time, batch, channels]`` with ``weight[k, channels, out]``."""
    x, weight = ctx.widened(x), ctx.widened(weight)
    time = ctx.out[0].shape[0]
    source = np.pad(x, ((pad, pad), (0, 0), (0, 0)))
    result = np.zeros(ctx.out[0].shape, x.dtype) + bias.astype(x.dtype)
    for place, matrix in enumerate(weight):
        result += source[place : place + time] @ matrix
    return result
