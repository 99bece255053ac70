"""XLA rules of pairwise distances, forward and backward."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.backends.xla.rules.reduction import number, vector_norm
from fuse.backends.xla.rules.registry import RuleContext, rule

_MATRIX_PRODUCT_FROM = 25
"""PyTorch's default takes the product form when either side has more rows than this."""


def _differences(x: jax.Array, y: jax.Array) -> jax.Array:
    """[..., P, R, M] from [..., P, M] and [..., R, M]: fused into its use, never stored."""
    return x[..., :, None, :] - y[..., None, :, :]


def _by_product(x: jax.Array, y: jax.Array) -> jax.Array:
    """Euclidean distances as |x|^2 - 2 x.y + |y|^2: one matrix product, fewer digits."""
    square_x, square_y = (lax.reduce_sum(v * v, (v.ndim - 1,)) for v in (x, y))
    cross = jnp.matmul(x, jnp.swapaxes(y, -1, -2), precision=lax.Precision.HIGHEST)
    square = square_x[..., :, None] - 2 * cross + square_y[..., None, :]
    return lax.sqrt(lax.max(square, jnp.zeros_like(square)))


@rule("_euclidean_dist")
def _euclidean(ctx: RuleContext, x: jax.Array, y: jax.Array) -> jax.Array:
    return _by_product(*ctx.computed(x, y))


@rule("_cdist_forward", static=("p",))
def _cdist(
    ctx: RuleContext, x: jax.Array, y: jax.Array, p: float, compute_mode: int | None
) -> jax.Array:
    x, y = ctx.computed(x, y)
    rows = max(x.shape[-2], y.shape[-2])
    # Modes: 0 or None by size, 1 always the product, 2 never (native/Distance.cpp).
    if p == 2 and (compute_mode == 1 or (not compute_mode and rows > _MATRIX_PRODUCT_FROM)):
        return _by_product(x, y)
    difference = _differences(x, y)
    return vector_norm(difference, float(p), (difference.ndim - 1,))


def _slope(difference: jax.Array, distance: jax.Array, p: float) -> jax.Array:
    """Derivative of the p-norm of ``difference`` by each component; 0 where undefined."""
    size, sign = lax.abs(difference), lax.sign(difference)
    zero = jnp.zeros((), difference.dtype)
    if p == 0:
        return jnp.zeros_like(difference)
    if p == 1:
        return sign
    if math.isinf(p):
        return jnp.where(size == distance, sign, zero)
    if p == 2:
        return jnp.where(distance == 0, zero, difference / distance)
    exponent = number(p - 1, difference.dtype)
    slope = sign * lax.pow(size, exponent) / lax.pow(distance, exponent)
    return jnp.where((distance == 0) | (size == 0), zero, slope)


def _gradient(
    grad: jax.Array, x: jax.Array, y: jax.Array, p: float, distance: jax.Array
) -> jax.Array:
    slope = _slope(_differences(x, y), distance[..., None], p)
    return lax.reduce_sum(grad[..., None] * slope, (grad.ndim - 1,))


@rule("_cdist_backward", static=("p",))
def _cdist_backward(
    ctx: RuleContext, grad: jax.Array, x: jax.Array, y: jax.Array, p: float, distance: jax.Array
) -> jax.Array:
    shape = ctx.out[0].shape  # x's own, even where an empty y makes the batch empty
    if 0 in (grad.size, x.size, y.size):
        return jnp.zeros(shape, x.dtype)
    grad, x, y, distance = ctx.computed(grad, x, y, distance)
    return _gradient(grad, x, y, float(p), distance)


def _pairs(rows: int) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.triu_indices(rows, 1)
    return first, second


@rule("_pdist_forward", static=("p",))
def _pdist(ctx: RuleContext, x: jax.Array, p: float = 2) -> jax.Array:
    first, second = _pairs(x.shape[0])
    wide = ctx.widened(x)
    return vector_norm(wide[first] - wide[second], float(p), (1,))


@rule("_pdist_backward", static=("p",))
def _pdist_backward(
    ctx: RuleContext, grad: jax.Array, x: jax.Array, p: float, distance: jax.Array
) -> jax.Array:
    grad, x, distance = ctx.computed(grad, x, distance)
    pairs = _pairs(x.shape[0])
    square = jnp.zeros((x.shape[0], x.shape[0]), x.dtype)
    grad, distance = (square.at[pairs].set(v) for v in (grad, distance))
    grad, distance = grad + grad.T, distance + distance.T
    return _gradient(grad, x, x, float(p), distance)
