"""Fourier transforms over chosen dimensions, with PyTorch's normalisations."""

from __future__ import annotations

import math

import numpy as np

from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray
_BY_ROOT, _BY_SIZE = 1, 2  # ATen/native/SpectralOpsUtils.h: 0 none, 1 by sqrt(n), 2 by n


def _normalised(x: Array, size: int, normalization: int) -> Array:
    if normalization == _BY_ROOT:
        return x / math.sqrt(size)
    return x / size if normalization == _BY_SIZE else x


def _size(x: Array, dims: tuple[int, ...]) -> int:
    return math.prod(x.shape[dim] for dim in dims)


@rule("_fft_c2c")
def _c2c(
    ctx: RuleContext, x: Array, dim: tuple[int, ...], normalization: int, forward: bool
) -> Array:
    if x.size == 0 or not dim:
        return x
    # The direction that NumPy names in ``norm`` is the one it scales.
    transform = np.fft.fftn if forward else np.fft.ifftn
    result = transform(x, axes=dim, norm="backward" if forward else "forward")
    return _normalised(result, _size(x, dim), normalization)


@rule("_fft_r2c")
def _r2c(
    ctx: RuleContext, x: Array, dim: tuple[int, ...], normalization: int, onesided: bool
) -> Array:
    """Forward transform of real values; ``onesided`` keeps the first half of the last ``dim``."""
    if x.size == 0:
        return np.zeros(ctx.out[0].shape, ctx.out[0].dtype)
    transform = np.fft.rfftn if onesided else np.fft.fftn
    return _normalised(transform(x, axes=dim), _size(x, dim), normalization)


@rule("_fft_c2r")
def _c2r(
    ctx: RuleContext, x: Array, dim: tuple[int, ...], normalization: int, last_dim_size: int
) -> Array:
    """Backward transform of the first half of a Hermitian signal, real."""
    if x.size == 0:
        return np.zeros(ctx.out[0].shape, ctx.out[0].dtype)
    *others, last = dim
    if others:
        x = np.fft.ifftn(x, axes=others, norm="forward")
    result = np.fft.irfft(x, last_dim_size, last, norm="forward")
    return _normalised(result, _size(result, dim), normalization)
