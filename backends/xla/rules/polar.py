"""The singular value decomposition through the polar one, for TPUs.

``A = U H`` with ``U`` orthonormal and ``H`` positive semidefinite: the eigenvectors of ``H`` are
the right singular vectors, ``U`` times them the left ones. Nakatsukasa and Higham, "Stable and
efficient spectral divide and conquer algorithms for the symmetric eigenvalue decomposition and
the SVD", SIAM J. Sci. Comput. 35 (2013). Both steps are JAX's. ``jax.lax.linalg.svd`` joins them
on TPUs in the same way, but multiplies a matrix of float32 by one of int64, of which libtpu
0.0.42 ends its process.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.lax import linalg

Factors = tuple[jax.Array, jax.Array, jax.Array]

_EXACT = lax.Precision.HIGHEST
_TALL = 1.15
"""Rows over columns from which on a QR decomposition first is less work (the paper's code)."""


def singular_factors(a: jax.Array, full_matrices: bool) -> Factors:
    """``U[..., m, k]``, ``S[..., min(m, n)]`` descending and ``Vh[..., l, n]`` of ``a[..., m, n]``.

    ``k`` and ``l`` are the smaller dimension, or ``m`` and ``n`` with ``full_matrices``; no
    dimension is 0. A matrix that is not finite gives NaN.
    """
    one = functools.partial(_of_matrix, full=full_matrices)
    for _ in a.shape[:-2]:
        one = jax.vmap(one)
    return one(a)


def _of_matrix(a: jax.Array, full: bool) -> Factors:
    rows, columns = a.shape
    if rows < columns:
        u, s, vh = _of_matrix(a.T.conj(), full)
        return vh.T.conj(), s, u.T.conj()
    finite = jnp.all(jnp.isfinite(a))
    if rows > columns and (full or rows > _TALL * columns):
        q, r = linalg.qr(a, full_matrices=full)
        u, s, v = _of_tall(r[:columns])
        u = jnp.concatenate([_product(q[:, :columns], u), q[:, columns:]], 1)
    else:
        u, s, v = _of_tall(a)
    u, s, vh = (jnp.where(finite, value, jnp.nan) for value in (u, s, v.T.conj()))
    return u, s, vh


def _of_tall(a: jax.Array) -> Factors:
    """Of at least as many rows as columns; the right singular vectors are columns."""
    u, h, *_ = linalg.qdwh(a)
    v, s = linalg.eigh(h, symmetrize_input=False)
    s, v = jnp.maximum(s[::-1], 0), v[:, ::-1]
    u = _product(u, v)
    small = s[-1] <= a.shape[1] * float(np.finfo(s.dtype).eps) * s[0]
    return lax.cond(small, _orthonormal, lambda u: u, u), s, v


def _orthonormal(u: jax.Array) -> jax.Array:
    """Where the matrix lacks rank its last columns are no unit vectors: replace them."""
    q, r = linalg.qr(u, full_matrices=False)
    diagonal = jnp.diagonal(r)
    size = jnp.abs(diagonal)
    phase = jnp.where(size > 0, diagonal / jnp.where(size > 0, size, 1), 1)
    return q * phase


def _product(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.matmul(x, y, precision=_EXACT)
