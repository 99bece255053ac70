"""Sampling at positions given by a grid, in two and three dimensions, with gradients.

Positions outside the input are clipped, reflected or read as zero. Clipping and
reflection are written with comparisons, so that their derivatives are PyTorch's at
the borders too (zero on and beyond them), and the gradients are JAX's own.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fuse.backends.xla.rules.registry import RuleContext, rule

_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
_CUBIC = -0.75


def _clip(place: jax.Array, size: int) -> jax.Array:
    """Clip to ``[0, size - 1]``; NaN becomes 0."""
    low = jnp.where(place > 0, place, 0)
    return jnp.where(low < size - 1, low, size - 1)


def _reflect(place: jax.Array, size: int, align: bool) -> jax.Array:
    """Reflect at the outermost centres, or at the outer edges unless ``align``."""
    low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
    if span == 0:
        return jnp.zeros_like(place)
    distance = jnp.where(place < low, low - place, place - low)
    flips = jax.lax.stop_gradient(jnp.floor(distance / span))
    rest = distance - flips * span
    return jnp.where(flips % 2 == 0, rest + low, span - rest + low)


def _bounded(place: jax.Array, size: int, padding: int, align: bool) -> jax.Array:
    if padding == _REFLECTION:
        place = _reflect(place, size, align)
    return place if padding == _ZEROS else _clip(place, size)


def _unnormalised(coordinate: jax.Array, size: int, align: bool) -> jax.Array:
    if align:
        return (coordinate + 1) / 2 * (size - 1)
    return ((coordinate + 1) * size - 1) / 2


def _read(x: jax.Array, places: list[jax.Array], masked: bool) -> jax.Array:
    """``x[n, c, *places]`` at integral positions; zero outside if ``masked``, which are clipped."""
    sizes = x.shape[2:]
    index: Any = 0
    inside: Any = True
    for place, size in zip(places, sizes, strict=True):
        inside = inside & (place >= 0) & (place <= size - 1)
        position = jnp.where(place > 0, jnp.where(place < size - 1, place, size - 1), 0)
        index = index * size + position.astype(jnp.int32)
    flat = x.reshape(*x.shape[:2], math.prod(sizes))
    taken = jnp.take_along_axis(flat, index.reshape(index.shape[0], 1, -1), 2, mode="clip")
    taken = taken.reshape(*x.shape[:2], *index.shape[1:])
    return jnp.where(inside[:, None], taken, 0) if masked else taken


def _cubic_weights(offset: jax.Array) -> list[jax.Array]:
    """Weights of the four neighbours (Keys' cubic convolution)."""
    a = _CUBIC

    def near(x: jax.Array) -> jax.Array:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: jax.Array) -> jax.Array:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(offset + 1), near(offset), near(1 - offset), far(2 - offset)]


def sample(x: jax.Array, grid: jax.Array, mode: int, padding: int, align: bool) -> jax.Array:
    """``x[N, C, *in]`` at ``grid[N, *out, d]``, which names the last dimension first."""
    sizes = x.shape[2:]
    raw = [_unnormalised(grid[..., -1 - number], size, align) for number, size in enumerate(sizes)]
    if mode == _BICUBIC:
        return _sample_cubic(x, raw, padding, align)
    places = [_bounded(place, size, padding, align) for place, size in zip(raw, sizes, strict=True)]
    if mode == _NEAREST:
        whole = [jnp.round(place) for place in places]  # half to even, as nearbyint
        return _read(x, whole, masked=padding == _ZEROS)
    lower = [jax.lax.stop_gradient(jnp.floor(place)) for place in places]
    offsets = [place - floor for place, floor in zip(places, lower, strict=True)]
    total: Any = 0
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        value = _read(x, [low + step for low, step in zip(lower, corner, strict=True)], True)
        weight: Any = 1
        for offset, step in zip(offsets, corner, strict=True):
            weight = weight * (offset if step else 1 - offset)
        total = total + value * weight[:, None]
    sampled: jax.Array = total
    return sampled


def _sample_cubic(x: jax.Array, raw: list[jax.Array], padding: int, align: bool) -> jax.Array:
    """Bicubic: every neighbour, not the position itself, is bounded."""
    sizes = x.shape[2:]
    lower = [jax.lax.stop_gradient(jnp.floor(place)) for place in raw]
    weights = [_cubic_weights(place - low) for place, low in zip(raw, lower, strict=True)]
    total: Any = 0
    for taps in itertools.product(range(4), repeat=2):
        places = [
            _bounded(low + tap - 1, size, padding, align)
            for low, tap, size in zip(lower, taps, sizes, strict=True)
        ]
        weight = weights[0][taps[0]] * weights[1][taps[1]]
        total = total + _read(x, places, padding == _ZEROS) * weight[:, None]
    sampled: jax.Array = total
    return sampled


@rule("grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(
    ctx: RuleContext,
    x: jax.Array,
    grid: jax.Array,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> jax.Array:
    if np.prod(ctx.out[0].shape) == 0:
        return jnp.zeros(ctx.out[0].shape, x.dtype)
    wide = (ctx.widened(x), ctx.widened(grid))
    return sample(*wide, interpolation_mode, padding_mode, align_corners)


@rule("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def _grid_sampler_backward(
    ctx: RuleContext,
    grad: jax.Array,
    x: jax.Array,
    grid: jax.Array,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: tuple[bool, ...],
) -> tuple[jax.Array | None, jax.Array]:
    """PyTorch gives a gradient of the grid whatever the mask says."""
    function = partial(sample, mode=interpolation_mode, padding=padding_mode, align=align_corners)
    _, pull = jax.vjp(function, ctx.widened(x), ctx.widened(grid))
    grad_input, grad_grid = pull(ctx.widened(grad))
    return grad_input if output_mask[0] else None, grad_grid
