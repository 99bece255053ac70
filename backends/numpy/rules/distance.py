"""Pairwise distances, forward and backward."""

from __future__ import annotations

import math

import numpy as np

from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray
_MATRIX_PRODUCT_FROM = 25
"""PyTorch's default takes the product form when either side has more rows than this."""


def _differences(x: Array, y: Array) -> Array:
    """``[..., P, R, M]`` from ``[..., P, M]`` and ``[..., R, M]``."""
    return np.asarray(x[..., :, None, :] - y[..., None, :, :])


def _norm(difference: Array, p: float) -> Array:
    """The p-norm over the last dimension; p = 0 counts what is not zero."""
    size, dtype = np.abs(difference), difference.dtype
    if p == 0:
        return np.sum(size != 0, axis=-1).astype(dtype)
    if math.isinf(p):
        return np.max(size, axis=-1, initial=0)
    if p == 1:
        return np.sum(size, axis=-1)
    if p == 2:
        return np.sqrt(np.sum(size * size, axis=-1))
    return np.sum(size ** dtype.type(p), axis=-1) ** dtype.type(1 / p)


def _by_product(x: Array, y: Array) -> Array:
    """Euclidean distances as |x|^2 - 2 x.y + |y|^2: one matrix product, fewer digits."""
    square_x, square_y = (np.sum(v * v, axis=-1) for v in (x, y))
    square = square_x[..., :, None] - 2 * (x @ y.swapaxes(-1, -2)) + square_y[..., None, :]
    return np.asarray(np.sqrt(np.maximum(square, 0)))


@rule("_euclidean_dist")
def _euclidean(ctx: RuleContext, x: Array, y: Array) -> Array:
    return _by_product(*ctx.computed(x, y))


@rule("_cdist_forward")
def _cdist(ctx: RuleContext, x: Array, y: Array, p: float, compute_mode: int | None) -> Array:
    x, y = ctx.computed(x, y)
    rows = max(x.shape[-2], y.shape[-2])
    # Modes: 0 or None by size, 1 always the product, 2 never (native/Distance.cpp).
    if p == 2 and (compute_mode == 1 or (not compute_mode and rows > _MATRIX_PRODUCT_FROM)):
        return _by_product(x, y)
    return _norm(_differences(x, y), p)


def _slope(difference: Array, distance: Array, p: float) -> Array:
    """Derivative of the p-norm of ``difference`` by each component; 0 where undefined."""
    size, sign = np.abs(difference), np.sign(difference)
    if p == 0:
        return np.zeros_like(difference)
    if p == 1:
        return sign
    if math.isinf(p):
        return np.where(size == distance, sign, 0).astype(sign.dtype)
    exponent = difference.dtype.type(p - 1)
    slope = sign * (size / distance) ** exponent
    return np.where((distance == 0) | (size == 0), np.zeros((), slope.dtype), slope)


def _gradient(grad: Array, x: Array, y: Array, p: float, distance: Array) -> Array:
    slope = _slope(_differences(x, y), distance[..., None], p)
    return np.sum(grad[..., None] * slope, axis=-2)


@rule("_cdist_backward")
def _cdist_backward(
    ctx: RuleContext, grad: Array, x: Array, y: Array, p: float, distance: Array
) -> Array:
    if 0 in (grad.size, x.size, y.size):
        # x's own shape, even where an empty y makes the batch empty
        return np.zeros(ctx.out[0].shape, x.dtype)
    grad, x, y, distance = ctx.computed(grad, x, y, distance)
    return _gradient(grad, x, y, p, distance)


@rule("_pdist_forward")
def _pdist(ctx: RuleContext, x: Array, p: float = 2) -> Array:
    """Distances of the rows of ``x``, the pairs ``i < j`` in row-major order."""
    first, second = np.triu_indices(x.shape[0], 1)
    wide = ctx.widened(x)
    return _norm(wide[first] - wide[second], p)


@rule("_pdist_backward")
def _pdist_backward(ctx: RuleContext, grad: Array, x: Array, p: float, distance: Array) -> Array:
    grad, x, distance = ctx.computed(grad, x, distance)
    pairs = np.triu_indices(x.shape[0], 1)
    square = [np.zeros((x.shape[0], x.shape[0]), x.dtype) for _ in range(2)]
    for full, values in zip(square, (grad, distance), strict=True):
        full[pairs] = values
        full += full.T.copy()
    return _gradient(square[0], x, x, p, square[1])
