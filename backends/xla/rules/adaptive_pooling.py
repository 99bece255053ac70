"""Fractional pooling, and unpooling."""

from __future__ import annotations

import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp

from fuse.backends.xla.rules.pooling import scatter
from fuse.backends.xla.rules.registry import RuleContext, rule


@rule("max_unpool2d", "max_unpool3d")
def _unpool(
    ctx: RuleContext,
    x: jax.Array,
    indices: jax.Array,
    sizes: tuple[int, ...],
    *_window: tuple[int, ...],
) -> jax.Array:
    lead = x.shape[: x.ndim - len(sizes)]
    if x.size == 0:
        return jnp.zeros((*lead, *sizes), x.dtype)
    rows, flat = math.prod(lead), math.prod(sizes)
    row = jnp.arange(rows)[:, None] * flat
    target = (row + indices.reshape(rows, -1)).reshape(-1)
    zeros = jnp.zeros((rows * flat,), x.dtype)
    return zeros.at[target].set(x.reshape(-1), mode="drop").reshape(*lead, *sizes)


def _fractional_starts(sample: jax.Array, size: int, out: int, kernel: int) -> jax.Array:
    """Window starts ``[*, out]`` from one uniform sample each (Graham, arXiv:1412.6071)."""
    last = jnp.full((*sample.shape, 1), size - kernel, jnp.int32)
    if out == 1:
        return last
    alpha = jnp.asarray((size - kernel) / (out - 1), sample.dtype)
    steps = jnp.arange(out - 1, dtype=sample.dtype)
    begin = jnp.trunc((steps + sample[..., None]) * alpha)
    starts = (begin - jnp.trunc(sample * alpha)[..., None]).astype(jnp.int32)
    return jnp.concatenate([starts, last], -1)


def _fractional(
    order: tuple[int, ...],
    ctx: RuleContext,
    x: jax.Array,
    kernel: tuple[int, ...],
    output_size: tuple[int, ...],
    samples: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """``order[d]`` is the column of ``samples`` that places the windows of dimension ``d``."""
    if x.size == 0:
        return jnp.zeros(ctx.out[0].shape, x.dtype), jnp.zeros(ctx.out[0].shape, jnp.int64)
    dims = len(output_size)
    lead, sizes = x.shape[:-dims], x.shape[-dims:]
    samples = samples.reshape(*lead, dims) if x.ndim > dims + 1 else samples[0]
    starts = []
    for dim in range(dims):
        begin = _fractional_starts(
            samples[..., order[dim]], sizes[dim], output_size[dim], kernel[dim]
        )
        shape = [output_size[dim] if dim == other else 1 for other in range(dims)]
        starts.append(begin.reshape(*lead, *shape))

    def at(corner: tuple[int, ...]) -> jax.Array:
        index = jnp.zeros((1,) * x.ndim, jnp.int32)
        for dim in range(dims):
            index = index * sizes[dim] + starts[dim] + corner[dim]
        return jnp.broadcast_to(index, ctx.out[0].shape)

    flat = x.reshape(*lead, -1)
    # A window without elements is minus infinity, where it starts, as in PyTorch.
    best_index = at((0,) * dims)
    best = jnp.full(ctx.out[0].shape, -jnp.inf, x.dtype)
    for corner in itertools.product(*(range(size) for size in kernel)):
        index = at(corner)
        value = jnp.take_along_axis(flat, index.reshape(*lead, -1), -1).reshape(index.shape)
        wins = (value > best) | (value != value)
        best, best_index = jnp.where(wins, value, best), jnp.where(wins, index, best_index)
    return best, best_index


@rule("fractional_max_pool2d_backward", "fractional_max_pool3d_backward")
def _fractional_backward(
    ctx: RuleContext,
    grad: jax.Array,
    x: jax.Array,
    kernel: tuple[int, ...],
    output_size: tuple[int, ...],
    indices: jax.Array,
) -> jax.Array:
    return scatter(ctx.widened(grad), indices, x.shape[-len(output_size) :])


rule("fractional_max_pool2d")(partial(_fractional, (1, 0)))
rule("fractional_max_pool3d")(partial(_fractional, (0, 1, 2)))
