"""XLA rules of softmax and log-softmax, forward and backward.

Each is the textbook form: XLA fuses it into one pass a reduction and one for the
result, which on CPU beats spellings with barriers, with one exponential less or with a
product for the sum (measured at 10 to 1000 classes).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.reduction import at_least_1d
from fuse.backends.xla.rules.reduction import axis_of, kept
from fuse.backends.xla.rules.registry import RuleContext, rule


def _row_sum(x: jax.Array, axis: int) -> jax.Array:
    return kept(x, lax.reduce_sum(x, (axis,)), (axis,))


def _shifted(x: jax.Array, axis: int) -> jax.Array:
    """``x`` less its largest element along ``axis``; a row of -inf gives NaN, as in ATen."""
    return x - kept(x, lax.reduce_max(x, (axis,)), (axis,))


def softmax(x: jax.Array, axis: int) -> jax.Array:
    """exp(x) / sum(exp(x)) along ``axis``, same shape and dtype (half must be widened)."""
    powers = lax.exp(_shifted(x, axis))
    return powers / _row_sum(powers, axis)


def log_softmax(x: jax.Array, axis: int) -> jax.Array:
    """x - log(sum(exp(x))) along ``axis``, same shape and dtype (half must be widened)."""
    shifted = _shifted(x, axis)
    return shifted - lax.log(_row_sum(lax.exp(shifted), axis))


@rule("_softmax")
def _softmax(ctx: RuleContext, x: jax.Array, dim: int, half_to_float: bool) -> jax.Array:
    row = at_least_1d(ctx.widened(x))
    return softmax(row, axis_of(dim, row.ndim)).reshape(x.shape)


@rule("_safe_softmax")
def _safe_softmax(ctx: RuleContext, x: jax.Array, dim: int, dtype: str | None = None) -> jax.Array:
    row = at_least_1d(ctx.widened(x.astype(ctx.out[0].dtype)))
    axis = axis_of(dim, row.ndim)
    masked = kept(row, lax.reduce_and(row == -jnp.inf, (axis,)), (axis,))
    # A row that is masked as a whole is 0 where softmax is NaN.
    return jnp.where(masked, jnp.zeros((), row.dtype), softmax(row, axis)).reshape(x.shape)


@rule("_log_softmax")
def _log_softmax(ctx: RuleContext, x: jax.Array, dim: int, half_to_float: bool) -> jax.Array:
    row = at_least_1d(ctx.widened(x))
    return log_softmax(row, axis_of(dim, row.ndim)).reshape(x.shape)


@rule("_softmax_backward_data")
def _softmax_backward(
    ctx: RuleContext, grad: jax.Array, output: jax.Array, dim: int, input_dtype: str
) -> jax.Array:
    g, y = at_least_1d(ctx.widened(grad)), at_least_1d(ctx.widened(output))
    product = g * y
    result = product - y * _row_sum(product, axis_of(dim, y.ndim))
    return result.reshape(output.shape)


@rule("_log_softmax_backward_data")
def _log_softmax_backward(
    ctx: RuleContext, grad: jax.Array, output: jax.Array, dim: int, input_dtype: str
) -> jax.Array:
    g, y = at_least_1d(ctx.widened(grad)), at_least_1d(ctx.widened(output))
    result = g - lax.exp(y) * _row_sum(g, axis_of(dim, y.ndim))
    return result.reshape(output.shape)
