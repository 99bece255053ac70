"""Maximum and average pooling, adaptive too, over one to three dimensions, with gradients.

A window is a list of positions along every pooled dimension: ``Windows`` holds them for one
dimension as an array ``places[j, o]``, the position of element ``j`` of window ``o``, or
``OUTSIDE`` where that is in the padding or past the window's end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuse.backends.numpy.rules.registry import RuleContext, rule
from fuse.backends.numpy.rules.windows import merged
from fuse.backends.pooling import Pooling

Array = np.ndarray
OUTSIDE = -1


@dataclass(frozen=True)
class Windows:
    """The windows along one dimension of ``size`` elements.

    ``spans`` is the number of elements of each window with the padding counted, but not what
    lies beyond it; ``first`` is its first position that is not in the padding before the input.
    """

    size: int
    places: Array
    spans: Array
    first: Array

    @property
    def counts(self) -> Array:
        """How many elements of each window lie inside."""
        return np.sum(self.places != OUTSIDE, axis=0)


def _regular(size: int, out: int, kernel: int, stride: int, padding: int, gap: int) -> Windows:
    first = np.arange(out) * stride - padding
    places = first + np.arange(kernel)[:, None] * gap
    places = np.where((places >= 0) & (places < size), places, OUTSIDE)
    spans = np.minimum(first + kernel, size + padding) - first
    return Windows(size, places, spans, np.where(first < 0, first % gap, first))


def _adaptive(size: int, parts: int) -> Windows:
    part = np.arange(parts)
    first, end = part * size // parts, -(-(part + 1) * size // parts)
    places = first + np.arange(np.max(end - first, initial=0))[:, None]
    return Windows(size, np.where(places < end, places, OUTSIDE), end - first, first)


def _elements(windows: Sequence[Windows]) -> Iterator[tuple[Array, Array]]:
    """For every element of a window, row-major: its flat position, and whether it is inside.

    Both have the shape of the result's pooled dimensions.
    """
    for taps in itertools.product(*(range(len(window.places)) for window in windows)):
        flat, inside = np.zeros((), np.int64), np.ones((), bool)
        for tap, window in zip(taps, windows, strict=True):
            place = window.places[tap]
            flat = flat[..., None] * window.size + place
            inside = inside[..., None] & (place != OUTSIDE)
        yield np.where(inside, flat, 0), inside


def _maximum(ctx: RuleContext, x: Array, windows: Sequence[Windows]) -> tuple[Array, Array]:
    """The greatest element of each window and its flat position in the pooled dimensions.

    The first of equal elements wins, and the last NaN of a window, as in PyTorch; a window of
    padding alone has the lowest value, at its first position.
    """
    lead = x.shape[: x.ndim - len(windows)]
    flat = merged(x, len(windows))
    shape = (*lead, *(window.places.shape[1] for window in windows))
    first = np.zeros((), np.int64)
    for window in windows:
        first = first[..., None] * window.size + window.first
    lowest = np.iinfo(x.dtype).min if np.issubdtype(x.dtype, np.integer) else -np.inf
    best, index = np.full(shape, lowest, x.dtype), np.broadcast_to(first, shape)
    seen = np.zeros(shape, bool)
    for place, inside in _elements(windows):
        value = flat[..., place]
        wins = inside & (~seen | (value > best) | (value != value))
        best, index = np.where(wins, value, best), np.where(wins, place, index)
        seen |= inside
    return best, index


def scatter(grad: Array, index: Array, sizes: Sequence[int]) -> Array:
    """Add ``grad`` at flat positions ``index`` of zeros; leading dimensions are independent."""
    lead = grad.shape[: grad.ndim - len(sizes)]
    rows = math.prod(lead)
    total = np.zeros((rows, math.prod(sizes)), grad.dtype)
    each = math.prod(grad.shape[len(lead) :])
    np.add.at(
        total, (np.arange(rows)[:, None], index.reshape(rows, each)), grad.reshape(rows, each)
    )
    return total.reshape(*lead, *sizes)


def _window_sums(x: Array, windows: Sequence[Windows]) -> Array:
    """The sum of every window; padding counts as zero."""
    lead = x.shape[: x.ndim - len(windows)]
    flat = merged(x, len(windows))
    total = np.zeros((*lead, *(window.places.shape[1] for window in windows)), x.dtype)
    for place, inside in _elements(windows):
        total += np.where(inside, flat[..., place], np.zeros((), x.dtype))
    return total


def _spread_sums(grad: Array, like: Array, windows: Sequence[Windows]) -> Array:
    """The transpose of ``_window_sums``: every element of a window receives its ``grad``."""
    total, zero = np.zeros_like(merged(like, len(windows)), grad.dtype), np.zeros((), grad.dtype)
    for place, inside in _elements(windows):
        index: Any = (..., place)
        np.add.at(total, index, np.where(inside, grad, zero))
    return total.reshape(like.shape)


def _divisors(windows: Sequence[Windows], include_padding: bool) -> Array:
    """The number of elements that each window counts."""
    product = np.ones((), np.int64)
    for window in windows:
        count = window.spans if include_padding else window.counts
        product = product[..., None] * np.maximum(count, 1)
    return product


def _divided(x: Array, by: Array | int) -> Array:
    """Quotient in the dtype of ``x``; integers truncate as in C."""
    by = np.asarray(by)
    if not np.issubdtype(x.dtype, np.integer):
        return x / by.astype(x.dtype)
    quotient = np.abs(x) // np.abs(by)
    return np.where((x < 0) != (by < 0), -quotient, quotient)


def _maximum_gradient(
    ctx: RuleContext, grad: Array, indices: Array, x: Array, windows: Sequence[Windows]
) -> Array:
    return scatter(grad, indices, x.shape[-len(windows) :])


def _average(ctx: RuleContext, x: Array, windows: Sequence[Windows], by: Array | int) -> Array:
    return _divided(_window_sums(x, windows), by)


def _average_gradient(
    ctx: RuleContext, grad: Array, x: Array, windows: Sequence[Windows], by: Array | int
) -> Array:
    return _spread_sums(_divided(grad, by), x, windows)


Pooling(
    regular=_regular,
    adaptive=_adaptive,
    divisors=_divisors,
    maximum=_maximum,
    maximum_gradient=_maximum_gradient,
    average=_average,
    average_gradient=_average_gradient,
).register(rule)
