"""NumPy rules of softmax and log-softmax, forward and backward, in their textbook form."""

from __future__ import annotations

import math

import numpy as np

from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.reduction import add_up, maximum
from fuse.backends.numpy.rules.registry import RuleContext, rule
from fuse.backends.reduction import axes_of

Array = np.ndarray


def _row_sum(x: Array, dim: int) -> Array:
    return add_up(x, axes_of(dim, x.ndim), keepdims=True)


def _shifted(x: Array, dim: int) -> Array:
    """``x`` less its largest element along ``dim``; a row of -inf gives NaN, as in ATen."""
    return x - maximum(x, axes_of(dim, x.ndim)) if x.size else x


def softmax(x: Array, dim: int) -> Array:
    """exp(x) / sum(exp(x)) along ``dim``, same shape and dtype (half must be widened)."""
    powers = np.exp(_shifted(x, dim))
    return powers / _row_sum(powers, dim)


def log_softmax(x: Array, dim: int) -> Array:
    """x - log(sum(exp(x))) along ``dim``, same shape and dtype (half must be widened)."""
    shifted = _shifted(x, dim)
    return shifted - np.log(_row_sum(np.exp(shifted), dim))


@rule("_softmax")
def _softmax(ctx: RuleContext, x: Array, dim: int, half_to_float: bool) -> Array:
    return softmax(ctx.widened(x), dim)


@rule("_log_softmax")
def _log_softmax(ctx: RuleContext, x: Array, dim: int, half_to_float: bool) -> Array:
    return log_softmax(ctx.widened(x), dim)


@rule("_safe_softmax")
def _safe_softmax(ctx: RuleContext, x: Array, dim: int, dtype: str | None = None) -> Array:
    wide = ctx.widened(convert(x, ctx.out[0].dtype))
    masked = np.all(wide == -math.inf, axis=axes_of(dim, x.ndim), keepdims=True)
    # A row that is masked as a whole is 0 where softmax is NaN.
    return np.where(masked, 0, softmax(wide, dim))


@rule("_softmax_backward_data")
def _softmax_backward(
    ctx: RuleContext, grad: Array, output: Array, dim: int, input_dtype: str
) -> Array:
    product = ctx.widened(grad) * ctx.widened(output)
    return product - ctx.widened(output) * _row_sum(product, dim)


@rule("_log_softmax_backward_data")
def _log_softmax_backward(
    ctx: RuleContext, grad: Array, output: Array, dim: int, input_dtype: str
) -> Array:
    wide = ctx.widened(grad)
    return wide - np.exp(ctx.widened(output)) * _row_sum(wide, dim)
