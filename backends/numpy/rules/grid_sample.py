"""Sampling at positions given by a grid, in two and three dimensions, with gradients.

A sample is a sum of terms, each the input at one neighbouring element times a weight; the
neighbour along a dimension moves in steps, so only the weights depend smoothly on the
position. ``_terms`` lists them, and both operators read from that list.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuse.backends.numpy.rules.registry import RuleContext, rule
from fuse.backends.numpy.rules.windows import merged

Array = np.ndarray
_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
_A = -0.75  # of Keys' cubic convolution, as in PyTorch


@dataclass(frozen=True)
class _Tap:
    """One neighbour along one dimension: its position, its weight, and the weight's slope."""

    place: Array
    weight: Array
    slope: Array


def _clip(place: Array, size: int) -> tuple[Array, Array]:
    """Clipped to ``[0, size - 1]``, and the slope; NaN becomes 0."""
    inside = (place > 0) & (place < size - 1)
    clipped = np.where(place > 0, np.where(place < size - 1, place, size - 1), 0)
    return clipped.astype(place.dtype), inside.astype(place.dtype)


def _reflect(place: Array, size: int, align: bool) -> tuple[Array, Array]:
    """Reflected at the outermost centres, or at the outer edges unless ``align``; the slope."""
    low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
    if span == 0:
        return np.zeros_like(place), np.zeros_like(place)
    below = place < low
    distance = np.where(below, low - place, place - low)
    flips = np.floor(distance / span)
    rest, even = distance - flips * span, flips % 2 == 0
    slope = np.where(below == even, -1, 1).astype(place.dtype)
    return np.where(even, rest + low, span - rest + low), slope


def _bounded(place: Array, size: int, padding: int, align: bool) -> tuple[Array, Array]:
    """Where a position outside the input is read, and the slope of that."""
    slope = np.ones_like(place)
    if padding == _REFLECTION:
        place, slope = _reflect(place, size, align)
    if padding != _ZEROS:
        place, inside = _clip(place, size)
        slope = slope * inside
    return place, slope


def _taps(raw: Array, size: int, mode: int, padding: int, align: bool) -> list[_Tap]:
    """The neighbours of unnormalised positions ``raw`` along a dimension of ``size``."""
    if mode == _BICUBIC:  # every neighbour, not the position itself, is bounded
        lower = np.floor(raw)
        return [
            _Tap(_bounded(lower + (tap - 1), size, padding, align)[0], weight, slope)
            for tap, (weight, slope) in enumerate(_cubic_weights(raw - lower))
        ]
    place, slope = _bounded(raw, size, padding, align)
    if mode == _NEAREST:
        return [_Tap(np.round(place), np.ones_like(place), np.zeros_like(place))]  # half to even
    lower = np.floor(place)
    offset = place - lower
    return [_Tap(lower, 1 - offset, -slope), _Tap(lower + 1, offset, slope)]


def _cubic_weights(offset: Array) -> list[tuple[Array, Array]]:
    """Weights of four neighbours and their slopes (R. Keys, IEEE TASSP 29, 1981)."""

    def near(x: Array) -> tuple[Array, Array]:
        return ((_A + 2) * x - (_A + 3)) * x * x + 1, (3 * (_A + 2) * x - 2 * (_A + 3)) * x

    def far(x: Array) -> tuple[Array, Array]:
        return ((_A * x - 5 * _A) * x + 8 * _A) * x - 4 * _A, (3 * x - 10) * x * _A + 8 * _A

    def mirrored(function: Callable[[Array], tuple[Array, Array]], x: Array) -> tuple[Array, Array]:
        weight, slope = function(x)
        return weight, -slope

    first, second = far(offset + 1), near(offset)
    return [first, second, mirrored(near, 1 - offset), mirrored(far, 2 - offset)]


def _unnormalised(coordinate: Array, size: int, align: bool) -> Array:
    if align:
        return (coordinate + 1) / 2 * (size - 1)
    return ((coordinate + 1) * size - 1) / 2


def _all_taps(
    sizes: tuple[int, ...], grid: Array, mode: int, padding: int, align: bool
) -> list[list[_Tap]]:
    """The neighbours along each dimension; ``grid[..., d]`` names the last dimension first."""
    return [
        _taps(_unnormalised(grid[..., -1 - dim], size, align), size, mode, padding, align)
        for dim, size in enumerate(sizes)
    ]


def _corners(
    sizes: tuple[int, ...], taps: list[list[_Tap]]
) -> Iterator[tuple[tuple[_Tap, ...], Array, Array]]:
    """Every neighbour: its tap a dimension, its flat position ``[N, *out]``, whether inside."""
    for corner in itertools.product(*taps):
        flat: Any = 0
        inside: Any = True
        for tap, size in zip(corner, sizes, strict=True):
            inside = inside & (tap.place >= 0) & (tap.place <= size - 1)
            flat = flat * size + _clip(tap.place, size)[0].astype(np.int64)
        yield corner, flat, inside


def _weight(corner: tuple[_Tap, ...]) -> Array:
    return np.asarray(math.prod(tap.weight for tap in corner))


@rule("grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(
    ctx: RuleContext,
    x: Array,
    grid: Array,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Array:
    """``x[N, C, *in]`` at ``grid[N, *out, d]``; what lies outside reads as zero."""
    x, grid, sizes = ctx.widened(x), ctx.widened(grid), x.shape[2:]
    flat = merged(x, len(sizes))
    total = np.zeros(ctx.out[0].shape, x.dtype)
    taps = _all_taps(sizes, grid, interpolation_mode, padding_mode, align_corners)
    for corner, place, inside in _corners(sizes, taps):
        value = np.take_along_axis(flat, merged(place[:, None], len(sizes)), 2)
        value = np.where(inside[:, None], value.reshape(total.shape), 0)
        total += value * _weight(corner)[:, None]
    return total


@rule("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def _grid_sampler_backward(
    ctx: RuleContext,
    grad: Array,
    x: Array,
    grid: Array,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: tuple[bool, ...],
) -> tuple[Array | None, Array]:
    """PyTorch gives a gradient of the grid whatever the mask says."""
    grad, x, grid = (ctx.widened(operand) for operand in (grad, x, grid))
    batch, channels, *sizes = x.shape
    flat = merged(x, len(sizes))
    grad_x, grad_grid = np.zeros_like(flat), np.zeros_like(grid)
    rows = np.arange(batch)[:, None, None], np.arange(channels)[:, None]
    taps = _all_taps(tuple(sizes), grid, interpolation_mode, padding_mode, align_corners)
    for corner, place, inside in _corners(tuple(sizes), taps):
        index = merged(place[:, None], len(sizes))
        taken = np.where(inside[:, None], grad * _weight(corner)[:, None], 0)
        np.add.at(grad_x, (*rows, index), merged(taken, len(sizes)))
        value = np.take_along_axis(flat, index, 2).reshape(grad.shape)
        change = np.sum(np.where(inside[:, None], value * grad, 0), axis=1)
        for dim, size in enumerate(sizes):
            scale = (size - 1) / 2 if align_corners else size / 2
            factors = [tap.slope if d == dim else tap.weight for d, tap in enumerate(corner)]
            grad_grid[..., -1 - dim] += change * math.prod(factors) * scale
    return grad_x.reshape(x.shape) if output_mask[0] else None, grad_grid
