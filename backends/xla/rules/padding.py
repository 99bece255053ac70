"""Padding, and the patches of a convolution written out (im2col)."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.xla.rules.registry import Number, Rule, RuleContext, rule

Array = jax.Array
Sizes = tuple[int, ...]


def transposed(forward: Callable[[Array], Array], shape: Sizes, grad: Array) -> Array:
    """Apply the transpose of a linear ``forward``, whose operand has ``shape``, to ``grad``."""
    operand = jax.eval_shape(lambda: jnp.zeros(shape, grad.dtype))
    result: Array = jax.linear_transpose(forward, operand)(grad)[0]
    return result


def _pairs(pad: Sizes, rank: int) -> list[tuple[int, int, int]]:
    """``(dim, before, after)`` of PyTorch's flat list, which starts at the last dim."""
    count = len(pad) // 2
    return [(rank - 1 - k, pad[2 * k], pad[2 * k + 1]) for k in range(count)]


@rule("constant_pad_nd")
def _constant_pad(ctx: RuleContext, self: Array, pad: Sizes, value: Number) -> Array:
    config = [(0, 0, 0)] * self.ndim
    for dim, before, after in _pairs(pad, self.ndim):
        config[dim] = (before, after, 0)
    return lax.pad(self, jnp.asarray(value).astype(self.dtype), config)


def _middle(value: Array, dim: int, before: int, after: int) -> Array:
    """The part of ``value`` that stays: negative padding crops."""
    size = value.shape[dim]
    if before >= 0 and after >= 0:
        return value
    return lax.slice_in_dim(value, max(-before, 0), size - max(-after, 0), axis=dim)


def _reflected(value: Array, pad: Sizes) -> Array:
    """Mirror ``value`` about its first and last elements, which are not repeated."""
    for dim, before, after in _pairs(pad, value.ndim):
        size, parts = value.shape[dim], [_middle(value, dim, before, after)]
        if before > 0:
            left = lax.slice_in_dim(value, 1, before + 1, axis=dim)
            parts.insert(0, lax.rev(left, (dim,)))
        if after > 0:
            right = lax.slice_in_dim(value, size - 1 - after, size - 1, axis=dim)
            parts.append(lax.rev(right, (dim,)))
        value = lax.concatenate(parts, dim) if len(parts) > 1 else parts[0]
    return value


def _replicated(value: Array, pad: Sizes) -> Array:
    """Repeat the first and last elements of ``value`` outwards."""
    for dim, before, after in _pairs(pad, value.ndim):
        size, parts = value.shape[dim], [_middle(value, dim, before, after)]
        if before > 0:
            parts.insert(0, _repeated(value, dim, 0, before))
        if after > 0:
            parts.append(_repeated(value, dim, size - 1, after))
        value = lax.concatenate(parts, dim) if len(parts) > 1 else parts[0]
    return value


def _repeated(value: Array, dim: int, index: int, times: int) -> Array:
    shape = (*value.shape[:dim], times, *value.shape[dim + 1 :])
    return jnp.broadcast_to(lax.slice_in_dim(value, index, index + 1, axis=dim), shape)


def _rules(padded: Callable[[Array, Sizes], Array]) -> tuple[Rule, Rule]:
    """A kind of padding, and its gradient."""

    def forward(ctx: RuleContext, self: Array, padding: Sizes) -> Array:
        return padded(self, padding)

    def backward(ctx: RuleContext, grad_output: Array, self: Array, padding: Sizes) -> Array:
        grad = ctx.widened(grad_output)
        return transposed(lambda x: padded(x, padding), self.shape, grad)

    return forward, backward


for _name, _padded in (("reflection", _reflected), ("replication", _replicated)):
    _forward, _backward = _rules(_padded)
    rule(*(f"{_name}_pad{dims}d" for dims in (1, 2, 3)))(_forward)
    rule(*(f"{_name}_pad{dims}d_backward" for dims in (1, 2, 3)))(_backward)


@rule("_pad_circular")
def _pad_circular(ctx: RuleContext, self: Array, pad: Sizes) -> Array:
    for dim, before, after in _pairs(pad, self.ndim):
        self = _middle(self, dim, before, after)  # what is cropped comes back at no edge
        size, parts = self.shape[dim], [self]
        if before > 0:
            parts.insert(0, lax.slice_in_dim(self, size - before, size, axis=dim))
        if after > 0:
            parts.append(lax.slice_in_dim(self, 0, after, axis=dim))
        self = lax.concatenate(parts, dim) if len(parts) > 1 else self
    return self


def _columns(image: Array, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Array:
    """``[B, C, H, W]`` to ``[B, C * kernel, positions]``: one strided slice a kernel element."""
    image = lax.pad(
        image, jnp.zeros((), image.dtype), [(0, 0, 0), (0, 0, 0), *((p, p, 0) for p in padding)]
    )
    batch, channels, *sizes = image.shape
    counts = [
        (size - step * (taps - 1) - 1) // jump + 1
        for size, taps, step, jump in zip(sizes, kernel, dilation, stride, strict=True)
    ]
    parts = []
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            first = (row * dilation[0], column * dilation[1])
            last = tuple(f + (n - 1) * s + 1 for f, n, s in zip(first, counts, stride, strict=True))
            parts.append(
                lax.slice(image, (0, 0, *first), (batch, channels, *last), (1, 1, *stride))
            )
    stacked = jnp.stack(parts, axis=2)
    return lax.reshape(stacked, (batch, channels * len(parts), counts[0] * counts[1]))


@rule("im2col")
def _im2col(
    ctx: RuleContext, self: Array, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Array:
    image = self if self.ndim == 4 else lax.expand_dims(self, (0,))
    columns = _columns(image, kernel, dilation, padding, stride)
    return lax.reshape(columns, ctx.out[0].shape)


@rule("col2im")
def _col2im(
    ctx: RuleContext,
    self: Array,
    output_size: Sizes,
    kernel: Sizes,
    dilation: Sizes,
    padding: Sizes,
    stride: Sizes,
) -> Array:
    columns = ctx.widened(self if self.ndim == 3 else lax.expand_dims(self, (0,)))
    channels = columns.shape[1] // (kernel[0] * kernel[1])
    shape = (columns.shape[0], channels, *output_size)
    image = transposed(lambda x: _columns(x, kernel, dilation, padding, stride), shape, columns)
    return lax.reshape(image, ctx.out[0].shape)
