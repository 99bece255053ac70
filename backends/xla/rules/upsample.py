"""Resampling to another size: nearest, linear, cubic and antialiased, with gradients.

Every method is a weighted sum of source elements along one dimension after another
(``fuse.backends.resampling``), and the gradient is the transposed sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from fuse.backends.resampling import Axis, register_upsampling
from fuse.backends.xla.rules.registry import RuleContext, of_integers, rule


def _apply(how: Axis, x: jax.Array, axis: int) -> jax.Array:
    if how.weights is None:
        return _picked(how, x, axis, how.index[0])
    shape = [1] * x.ndim
    shape[axis] = -1
    total: jax.Array | None = None
    for index, weight in zip(how.index, how.weights, strict=True):
        picked = _picked(how, x, axis, index)
        term = picked * jnp.asarray(weight, x.dtype).reshape(shape)
        total = term if total is None else total + term
    assert total is not None
    return total


def _picked(how: Axis, x: jax.Array, axis: int, index: np.ndarray) -> jax.Array:
    if len(index) == how.size and (index == np.arange(how.size)).all():
        return x
    times = len(index) // how.size
    if len(index) == times * how.size and (index == np.arange(len(index)) // times).all():
        return jnp.repeat(x, times, axis=axis)  # a broadcast, where a gather would cost more
    return jnp.take(x, index, axis=axis, mode="clip")


def _resample(x: jax.Array, how: Sequence[Axis]) -> jax.Array:
    # The last dimension first: the others then move whole rows.
    for number, axis in reversed(list(enumerate(how))):
        x = _apply(axis, x, x.ndim - len(how) + number)
    return x


def _resample_gradient(grad: jax.Array, shape: Sequence[int], how: Sequence[Axis]) -> jax.Array:
    like = jnp.zeros(tuple(shape), grad.dtype)
    if grad.size == 0:
        return like
    (result,) = jax.linear_transpose(lambda value: _resample(value, how), like)(grad)
    gradient: jax.Array = result
    return gradient


def _upsample(ctx: RuleContext, x: jax.Array, how: list[Axis], method: str) -> jax.Array:
    if x.size == 0:
        return jnp.zeros(ctx.out[0].shape, x.dtype)
    return _resample(x if method.startswith("nearest") else ctx.widened(x), how)


def _upsample_backward(
    ctx: RuleContext, grad: jax.Array, input_size: tuple[int, ...], how: list[Axis]
) -> jax.Array:
    if math.prod(input_size) == 0:
        return jnp.zeros(input_size, grad.dtype)
    return _resample_gradient(ctx.widened(grad), input_size, how)


register_upsampling(partial(rule, may_refuse=of_integers), _upsample, _upsample_backward)
