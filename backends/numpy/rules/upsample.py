"""Resampling to another size: nearest, linear, cubic and antialiased, with gradients.

Every method is a weighted sum of source elements along one dimension after another
(``fuse.backends.resampling``); the gradient adds each element back where it was read.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fuse.backends.numpy.rules.registry import RuleContext, rule
from fuse.backends.numpy.rules.slicing import along
from fuse.backends.resampling import Axis, register_upsampling

Array = np.ndarray


def _terms(how: Axis, x: Array, axis: int) -> Iterator[tuple[Array, Array | int]]:
    """Source positions along ``axis`` with their weights, shaped to multiply the result."""
    shape = [-1 if dim == axis else 1 for dim in range(x.ndim)]
    for number, index in enumerate(how.index):
        yield index, 1 if how.weights is None else how.weights[number].reshape(shape)


def _resample(x: Array, how: list[Axis]) -> Array:
    for number, one in reversed(list(enumerate(how))):
        axis = x.ndim - len(how) + number
        parts = [np.take(x, index, axis) * weight for index, weight in _terms(one, x, axis)]
        x = sum(parts[1:], start=parts[0]).astype(x.dtype, copy=False)
    return x


def _resample_gradient(grad: Array, how: list[Axis]) -> Array:
    for number, one in enumerate(how):
        axis = grad.ndim - len(how) + number
        total = np.zeros((*grad.shape[:axis], one.size, *grad.shape[axis + 1 :]), grad.dtype)
        for index, weight in _terms(one, grad, axis):
            part = (grad * weight).astype(grad.dtype, copy=False)
            np.add.at(total, along(axis, grad.ndim, index), part)
        grad = total
    return grad


def _upsample(ctx: RuleContext, x: Array, how: list[Axis], method: str) -> Array:
    return _resample(ctx.widened(x), how)


def _upsample_backward(
    ctx: RuleContext, grad: Array, input_size: tuple[int, ...], how: list[Axis]
) -> Array:
    return _resample_gradient(ctx.widened(grad), how)


register_upsampling(rule, _upsample, _upsample_backward)
