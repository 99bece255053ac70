"""Fourier transforms over chosen dimensions, with PyTorch's normalisations."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.xla.rules.registry import RuleContext, rule

_MOST_DIMENSIONS = 3  # of one XLA transform
_BY_ROOT, _BY_SIZE = 1, 2  # ATen/native/SpectralOpsUtils.h: 0 none, 1 by sqrt(n), 2 by n


def _normalised(x: jax.Array, size: int, normalization: int) -> jax.Array:
    if normalization == _BY_ROOT:
        return x * jnp.asarray(1 / math.sqrt(size), jnp.real(x).dtype)
    return x * jnp.asarray(1 / size, jnp.real(x).dtype) if normalization == _BY_SIZE else x


def _last(x: jax.Array, dims: list[int]) -> tuple[jax.Array, list[int]]:
    """Move ``dims`` to the end; also the permutation that moves them back."""
    order = [axis for axis in range(x.ndim) if axis not in dims] + dims
    return x.transpose(order), [order.index(axis) for axis in range(x.ndim)]


def _complex(x: jax.Array, dims: list[int], forward: bool) -> jax.Array:
    """Unscaled complex transform over ``dims``, a few at a time."""
    for start in range(0, len(dims), _MOST_DIMENSIONS):
        some = dims[start : start + _MOST_DIMENSIONS]
        moved, back = _last(x, some)
        lengths = moved.shape[-len(some) :]
        if forward:
            moved = lax.fft(moved, lax.FftType.FFT, lengths)
        else:  # XLA's inverse divides by the size
            moved = lax.fft(moved, lax.FftType.IFFT, lengths) * math.prod(lengths)
        x = moved.transpose(back)
    return x


def _positive(dims: tuple[int, ...], rank: int) -> list[int]:
    return [dim % rank for dim in dims]


def _size(x: jax.Array, dims: list[int]) -> int:
    return math.prod(x.shape[dim] for dim in dims)


@rule("_fft_c2c")
def _c2c(
    ctx: RuleContext, x: jax.Array, dim: tuple[int, ...], normalization: int, forward: bool
) -> jax.Array:
    if x.size == 0 or not dim:
        return x
    dims = _positive(dim, x.ndim)
    return _normalised(_complex(x, dims, forward), _size(x, dims), normalization)


@rule("_fft_r2c")
def _r2c(
    ctx: RuleContext, x: jax.Array, dim: tuple[int, ...], normalization: int, onesided: bool
) -> jax.Array:
    """Forward transform of real values; ``onesided`` keeps the first half of the last ``dim``."""
    out = ctx.out[0]
    if x.size == 0:
        return jnp.zeros(out.shape, out.dtype)
    dims = _positive(dim, x.ndim)
    if onesided:
        moved, back = _last(x, dims[-1:])
        half = lax.fft(moved, lax.FftType.RFFT, moved.shape[-1:]).transpose(back)
        result = _complex(half, dims[:-1], True)
    else:
        result = _complex(x.astype(out.dtype), dims, True)
    return _normalised(result, _size(x, dims), normalization)


@rule("_fft_c2r")
def _c2r(
    ctx: RuleContext,
    x: jax.Array,
    dim: tuple[int, ...],
    normalization: int,
    last_dim_size: int,
) -> jax.Array:
    """Backward transform of the first half of a Hermitian signal, real."""
    out = ctx.out[0]
    if x.size == 0:
        return jnp.zeros(out.shape, out.dtype)
    dims = _positive(dim, x.ndim)
    x = _complex(x, dims[:-1], False)
    needed = last_dim_size // 2 + 1
    moved, back = _last(x, dims[-1:])
    if moved.shape[-1] < needed:
        moved = jnp.pad(moved, [(0, 0)] * (x.ndim - 1) + [(0, needed - moved.shape[-1])])
    real = lax.fft(moved[..., :needed], lax.FftType.IRFFT, (last_dim_size,)) * last_dim_size
    return _normalised(real.transpose(back), _size(real.transpose(back), dims), normalization)
