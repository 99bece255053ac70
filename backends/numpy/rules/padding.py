"""Padding, and the patches of a convolution written out (im2col).

Padding along a dimension is a list of source positions, one for every result position;
its gradient adds what each source position received.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.registry import Rule, RuleContext, Scalar, rule
from fuse.backends.numpy.rules.slicing import along
from fuse.backends.numpy.rules.windows import cropped, padded, taps

Array = np.ndarray
Sizes = tuple[int, ...]
Positions = Callable[[int, int, int], Array]


def _pairs(pad: Sizes, rank: int) -> list[tuple[int, int, int]]:
    """``(dim, before, after)`` of PyTorch's flat list, which starts at the last dim."""
    return [(rank - 1 - k, pad[2 * k], pad[2 * k + 1]) for k in range(len(pad) // 2)]


def _reflected(size: int, before: int, after: int) -> Array:
    """Mirrored about the first and last elements, which are not repeated."""
    place = np.abs(np.arange(-before, size + after))
    return np.where(place < size, place, 2 * (size - 1) - place)


def _replicated(size: int, before: int, after: int) -> Array:
    """The first and last elements repeat outwards."""
    return np.clip(np.arange(-before, size + after), 0, size - 1)


def _circular(size: int, before: int, after: int) -> Array:
    """Wrapped around; what negative padding crops comes back at no edge."""
    first, last = max(-before, 0), size - max(-after, 0)
    kept = last - first
    return first + np.arange(-max(before, 0), kept + max(after, 0)) % kept


def _padded_by(positions: Positions, value: Array, pad: Sizes) -> Array:
    for dim, before, after in _pairs(pad, value.ndim):
        value = np.take(value, positions(value.shape[dim], before, after), dim)
    return value


def _gradient(positions: Positions, grad: Array, self: Array, pad: Sizes) -> Array:
    for dim, before, after in _pairs(pad, self.ndim):
        size = self.shape[dim]
        result = np.zeros((*grad.shape[:dim], size, *grad.shape[dim + 1 :]), grad.dtype)
        np.add.at(result, along(dim, grad.ndim, positions(size, before, after)), grad)
        grad = result
    return grad


@rule("constant_pad_nd")
def _constant_pad(ctx: RuleContext, self: Array, pad: Sizes, value: Scalar) -> Array:
    result = np.full(ctx.out[0].shape, convert(value, self.dtype.name))
    source, target = [slice(None)] * self.ndim, [slice(None)] * self.ndim
    for dim, before, after in _pairs(pad, self.ndim):
        size = self.shape[dim]
        source[dim] = slice(max(-before, 0), max(size - max(-after, 0), 0))
        target[dim] = slice(max(before, 0), result.shape[dim] - max(after, 0))
    result[tuple(target)] = self[tuple(source)]
    return result


def _rules(positions: Positions) -> tuple[Rule, Rule]:
    """A kind of padding, and its gradient."""

    def forward(ctx: RuleContext, self: Array, padding: Sizes) -> Array:
        return _padded_by(positions, self, padding)

    def backward(ctx: RuleContext, grad_output: Array, self: Array, padding: Sizes) -> Array:
        return _gradient(positions, ctx.widened(grad_output), self, padding)

    return forward, backward


rule("_pad_circular")(_rules(_circular)[0])
for _name, _positions in (("reflection", _reflected), ("replication", _replicated)):
    _forward, _backward = _rules(_positions)
    rule(*(f"{_name}_pad{dims}d" for dims in (1, 2, 3)))(_forward)
    rule(*(f"{_name}_pad{dims}d_backward" for dims in (1, 2, 3)))(_backward)


def _counts(
    sizes: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> list[int]:
    """How many windows fit along each dimension."""
    return [
        (size + 2 * p - gap * (k - 1) - 1) // step + 1
        for size, k, gap, p, step in zip(sizes, kernel, dilation, padding, stride, strict=True)
    ]


@rule("im2col")
def _im2col(
    ctx: RuleContext, self: Array, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Array:
    """``[*, C, H, W]`` to ``[*, C * kernel, positions]``."""
    out = _counts(self.shape[-2:], kernel, dilation, padding, stride)
    image = padded(self, padding)
    parts = [image[under] for _, under in taps(out, kernel, stride, dilation)]
    return np.stack(parts, axis=-3).reshape(ctx.out[0].shape)


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
    """The transpose of ``im2col``: every column element is added where it came from."""
    out = _counts(output_size, kernel, dilation, padding, stride)
    lead = ctx.out[0].shape[:-2]
    columns = ctx.widened(self).reshape(*lead, kernel[0] * kernel[1], *out)
    image = np.zeros(
        (*lead, *(n + 2 * p for n, p in zip(output_size, padding, strict=True))), columns.dtype
    )
    for number, (_, under) in enumerate(taps(out, kernel, stride, dilation)):
        image[under] += columns[..., number, :, :]
    return cropped(image, padding)
