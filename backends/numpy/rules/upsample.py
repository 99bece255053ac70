"""Resampling to another size: nearest, linear, cubic and antialiased, with gradients.

Every method is a weighted sum of source elements along one dimension after another
(``fuse.backends.resampling``); the gradient adds each element back where it was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fuse.backends.numpy.rules.registry import RuleContext, rule
from fuse.backends.numpy.rules.slicing import along
from fuse.backends.resampling import Axis, axes

Array = np.ndarray


def _terms(how: Axis, x: Array, axis: int) -> Iterator[tuple[Array, Any]]:
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


def _refuse_integers(method: str, ctx: RuleContext, x: Array, *_others: Any) -> str | None:
    whole = np.issubdtype(x.dtype, np.integer) or x.dtype == np.bool_
    if whole and not method.startswith("nearest"):
        return "interpolation of integers, which PyTorch rounds in its own way"
    return None


def _upsample(
    method: str, ctx: RuleContext, x: Array, output_size: tuple[int, ...], *args: Any
) -> Array:
    sizes = x.shape[-len(output_size) :]
    how = axes(method, sizes, output_size, args, x.dtype == np.float64)
    return _resample(ctx.widened(x), how)


def _upsample_vec(
    method: str, ctx: RuleContext, x: Array, output_size: tuple[int, ...] | None, *args: Any
) -> Array:
    """The overloads that take an optional size and a list of scale factors."""
    *align, factors = args
    sizes = ctx.out[0].shape[2:]
    scales = tuple(factors) if factors is not None else (None,) * len(sizes)
    return _upsample(method, ctx, x, sizes, *align, *scales)


def _upsample_backward(
    method: str,
    ctx: RuleContext,
    grad: Array,
    output_size: tuple[int, ...],
    input_size: tuple[int, ...],
    *args: Any,
) -> Array:
    sizes = input_size[-len(output_size) :]
    how = axes(method, sizes, output_size, args, grad.dtype == np.float64, backward=True)
    return _resample_gradient(ctx.widened(grad), how)


for _method in (
    "nearest1d", "nearest2d", "nearest3d", "nearest_exact1d", "nearest_exact2d",
    "nearest_exact3d", "linear1d", "bilinear2d", "trilinear3d", "bicubic2d",
    "bilinear2d_aa", "bicubic2d_aa", "lanczos2d_aa",
):  # fmt: skip
    _private = "_" if "exact" in _method or _method.endswith("_aa") else ""
    _name, _refuse = f"{_private}upsample_{_method}", partial(_refuse_integers, _method)
    rule(_name, refuse=_refuse)(partial(_upsample, _method))
    rule(f"{_name}.vec", refuse=_refuse)(partial(_upsample_vec, _method))
    rule(f"{_name}_backward", refuse=_refuse)(partial(_upsample_backward, _method))
