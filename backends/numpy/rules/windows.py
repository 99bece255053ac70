"""Spatial dimensions: padded, merged, and as seen through a sliding window."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Tap = tuple[tuple[int, ...], tuple[Any, ...]]


def taps(
    out: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Iterator[Tap]:
    """For every place in the kernel, row-major: the place and what lies under it.

    The second is an index into the last dimensions of a padded input; what it takes has the
    shape ``out``: position ``o`` along a dimension is element ``o * stride + place * dilation``.
    """
    for place in itertools.product(*map(range, kernel)):
        index = []
        for count, k, step, gap in zip(out, place, stride, dilation, strict=True):
            index.append(slice(k * gap, k * gap + (count - 1) * step + 1, step))
        yield place, (..., *index)


def merged(value: np.ndarray, dims: int) -> np.ndarray:
    """``value`` with its last ``dims`` dimensions as one."""
    lead = value.ndim - dims
    return value.reshape(*value.shape[:lead], math.prod(value.shape[lead:]))


def padded(value: np.ndarray, padding: Sequence[int]) -> np.ndarray:
    """``value`` with as many zeros before and after each of its last dimensions."""
    lead = [(0, 0)] * (value.ndim - len(padding))
    return np.pad(value, [*lead, *((p, p) for p in padding)])


def cropped(value: np.ndarray, padding: Sequence[int]) -> np.ndarray:
    """The inverse of ``padded``."""
    sizes = value.shape[value.ndim - len(padding) :]
    inner = (slice(p, size - p) for p, size in zip(padding, sizes, strict=True))
    index: tuple[Any, ...] = (..., *inner)
    return value[index]
