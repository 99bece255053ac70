"""Matrix factorisations, batched over leading dimensions.

``np.linalg`` computes in double precision what it has. Its Cholesky factorisation says only
that it failed, and of Householder products, matrix exponentials and triangular systems it has
none: those but exponentials, which are SciPy's, are written out here, a loop over columns or
rows for the whole batch.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import linalg

from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray


def adjoint(a: Array) -> Array:
    """Conjugate transpose of the last two dimensions."""
    return np.conj(a.swapaxes(-1, -2))


def empties(ctx: RuleContext) -> tuple[Array, ...]:
    """Zeros for every result."""
    return tuple(np.zeros(spec.shape, spec.dtype) for spec in ctx.out)


def identity(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Ones on the diagonal of matrices of ``shape``, read-only."""
    return np.broadcast_to(np.eye(*shape[-2:], dtype=dtype), shape)


def cholesky_factor(a: Array) -> tuple[Array, Array]:
    """Lower factor of the lower triangle of ``a[*, n, n]``, and ``info[*]``.

    ``info`` is 0, or the order of the first leading minor that is not positive; the factor
    is NaN from that column on.
    """
    lower = np.zeros_like(a)
    info = np.zeros(a.shape[:-2], np.int32)
    for j in range(a.shape[-1]):
        known = lower[..., j:, :j] @ np.conj(lower[..., j, :j, None])
        column = a[..., j:, j] - known[..., 0]
        pivot = column[..., 0].real
        bad = ~(pivot > 0)
        info = np.where(bad & (info == 0), j + 1, info).astype(np.int32)
        root = np.sqrt(np.where(bad, np.nan, pivot)).astype(pivot.dtype)
        lower[..., j:, j] = column / root[..., None]
    return lower, info


@rule("linalg_cholesky_ex")
def _cholesky_ex(
    ctx: RuleContext, a: Array, *, upper: bool = False, check_errors: bool = False
) -> tuple[Array, Array]:
    factor, info = cholesky_factor(adjoint(a) if upper else a)
    return adjoint(factor) if upper else factor, info


@rule("cholesky")
def _cholesky(ctx: RuleContext, a: Array, upper: bool = False) -> Array:
    factor, _ = cholesky_factor(adjoint(a) if upper else a)
    return adjoint(factor) if upper else factor


@rule("linalg_qr")
def _qr(ctx: RuleContext, a: Array, mode: str = "reduced") -> tuple[Array, Array]:
    """``mode`` is "reduced", "complete" or "r"; the last leaves Q empty."""
    if mode == "r":
        return empties(ctx)[0], np.asarray(np.linalg.qr(a, "r"))
    q, r = np.linalg.qr(a, "complete" if mode == "complete" else "reduced")
    return q, r


@rule("linalg_householder_product", "orgqr")
def _householder_product(ctx: RuleContext, a: Array, tau: Array) -> Array:
    """The first columns of ``H_1 ... H_k``, where ``H_i = 1 - tau_i v_i v_i^H``.

    ``v_i`` is 0 above row i, 1 there, and column i of ``a`` below.
    """
    q = identity(a.shape, a.dtype).copy()
    for i in reversed(range(tau.shape[-1])):
        v = np.tril(a, -1)[..., :, i, None] + np.eye(a.shape[-2], 1, -i, dtype=a.dtype)
        q -= tau[..., i, None, None] * (v @ (adjoint(v) @ q))
    return q


@rule("geqrf")
def _geqrf(ctx: RuleContext, a: Array) -> tuple[Array, ...]:
    """R above Householder vectors, and their factors, as LAPACK packs them."""
    if a.size == 0:
        return empties(ctx)
    packed, tau = np.linalg.qr(a, "raw")
    return packed.swapaxes(-1, -2), tau


@rule("ormqr")
def _ormqr(
    ctx: RuleContext, a: Array, tau: Array, c: Array, left: bool = True, transpose: bool = False
) -> Array:
    """``c`` times the whole ``Q = H_1 ... H_k``, or times its adjoint.

    The reflections meet ``c`` one by one: Q from the left begins with the last.
    """
    factors = np.conj(tau) if transpose else tau
    order = range(tau.shape[-1])
    size = a.shape[-2]
    for i in reversed(order) if left != transpose else order:
        v = np.tril(a, -1)[..., :, i, None] + np.eye(size, 1, -i, dtype=a.dtype)
        factor = factors[..., i, None, None]
        c = c - factor * (v @ (adjoint(v) @ c) if left else (c @ v) @ adjoint(v))
    return c


@rule("_linalg_svd")
def _svd(
    ctx: RuleContext,
    a: Array,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> tuple[Array, ...]:
    u, s, vh = empties(ctx)
    if not compute_uv:
        return u, np.linalg.svd(a, compute_uv=False), vh
    if a.size == 0:
        return identity(u.shape, u.dtype), s, identity(vh.shape, vh.dtype)
    u, s, vh = np.linalg.svd(a, full_matrices)
    return u, s, vh


@rule("_linalg_eigh")
def _eigh(
    ctx: RuleContext, a: Array, UPLO: str = "L", compute_v: bool = True
) -> tuple[Array, Array]:
    """Eigenvalues ascending, and vectors; only the triangle that ``UPLO`` names is read."""
    triangle: Literal["L", "U"] = "L" if UPLO.upper() == "L" else "U"
    if compute_v:
        values, vectors = np.linalg.eigh(a, triangle)
        return values, vectors
    return np.linalg.eigvalsh(a, triangle), empties(ctx)[1]


@rule("linalg_eig")
def _eig(ctx: RuleContext, a: Array) -> tuple[Array, Array]:
    values, vectors = np.linalg.eig(a)
    return values, vectors


@rule("_linalg_eigvals", "linalg_eigvals")
def _eigvals(ctx: RuleContext, a: Array) -> Array:
    return np.linalg.eigvals(a)


@rule("linalg_pinv.atol_rtol_tensor")
def _pseudo_inverse(
    ctx: RuleContext,
    a: Array,
    *,
    atol: Array | None = None,
    rtol: Array | None = None,
    hermitian: bool = False,
) -> Array:
    """Invert the singular values above ``max(atol, rtol * largest)``; the others become zero.

    Without tolerances ``rtol`` is epsilon times the larger dimension; a positive ``atol``
    alone replaces it by zero.
    """
    if a.size == 0:
        return empties(ctx)[0]
    if hermitian:
        values, u = np.linalg.eigh(a)
        vh = adjoint(u)
    else:
        u, values, vh = np.linalg.svd(a, full_matrices=False)
    size = np.abs(values)
    absolute = np.zeros((), size.dtype) if atol is None else atol
    default = np.finfo(a.dtype).eps * max(a.shape[-2:])
    relative = np.where(absolute > 0, 0, default) if rtol is None else rtol
    limit = np.maximum(absolute, relative * np.max(size, axis=-1))
    kept = size > limit[..., None]
    inverse = np.where(kept, 1 / np.where(kept, values, 1), 0).astype(a.dtype)
    return (adjoint(vh) * inverse[..., None, :]) @ adjoint(u)


@rule("linalg_matrix_exp")
def _matrix_exp(ctx: RuleContext, a: Array) -> Array:
    """Computed in double precision."""
    return linalg.expm(a.astype(np.complex128 if np.iscomplexobj(a) else np.float64))


@rule("linalg_cross")
def _cross(ctx: RuleContext, a: Array, b: Array, *, dim: int = -1) -> Array:
    """Cross products along ``dim``, which has size 3; the other dimensions broadcast."""
    x, y = np.broadcast_arrays(*ctx.computed(a, b))
    x, y = np.moveaxis(x, dim, 0), np.moveaxis(y, dim, 0)
    parts = [x[k - 2] * y[k - 1] - x[k - 1] * y[k - 2] for k in range(3)]
    return np.stack(parts, dim)


def triangular(a: Array, b: Array, *, lower: bool, unit: bool = False, left: bool = True) -> Array:
    """Solve ``A X = B``, or ``X A = B`` unless ``left``, by substitution, row after row.

    Only one triangle of ``a`` is read, and not its diagonal if it is ``unit``. Batch
    dimensions broadcast.
    """
    if not left:
        transposed = triangular(a.swapaxes(-1, -2), b.swapaxes(-1, -2), lower=not lower, unit=unit)
        return transposed.swapaxes(-1, -2)
    size = a.shape[-1]
    x = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), b.dtype)
    for row in range(size) if lower else reversed(range(size)):
        known = slice(row) if lower else slice(row + 1, None)
        rest = b[..., row, :] - (a[..., row, None, known] @ x[..., known, :])[..., 0, :]
        x[..., row, :] = rest if unit else rest / a[..., row, row, None]
    return x


__all__ = ["adjoint", "cholesky_factor", "empties", "identity", "triangular"]
