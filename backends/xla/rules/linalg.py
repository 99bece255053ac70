"""Matrix factorisations on XLA's own (LAPACK on the CPU platform), batched.

A failure that depends on the data cannot raise inside an executable: as in PyTorch's
``*_ex`` operators it is reported by ``info`` where there is one, and the value is NaN.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.lax import linalg

from fuse.backends.xla.rules.matmul import precision
from fuse.backends.xla.rules.polar import singular_factors
from fuse.backends.xla.rules.registry import RuleContext, Unsupported, rule


def adjoint(a: jax.Array) -> jax.Array:
    """Conjugate transpose of the last two dimensions."""
    return jnp.conj(a.swapaxes(-1, -2))


def empties(ctx: RuleContext) -> tuple[jax.Array, ...]:
    """Zeros for every result: the results of a factorisation of an empty batch or matrix."""
    return tuple(jnp.zeros(spec.shape, spec.dtype) for spec in ctx.out)


def single_on_tpu(ctx: RuleContext, a: jax.Array, what: str) -> None:
    """Refuse what a TPU has of float32 and complex64 alone.

    Its compiler has no LU factors of float64; of eigenvectors, from which JAX makes singular values
    too, it ends the search at an error of 1e-6.
    """
    if ctx.platform.name == "tpu" and a.dtype not in (jnp.float32, jnp.complex64):
        raise Unsupported(f"a TPU has no {what} of {a.dtype}")


def _identity(like: jax.Array) -> jax.Array:
    rows, columns = like.shape[-2:]
    return jnp.broadcast_to(jnp.eye(rows, columns, dtype=like.dtype), like.shape)


def _first_bad_minor(a: jax.Array) -> jax.Array:
    """Order of the first leading minor of ``a[n, n]`` that is not positive, else 0."""
    size = a.shape[-1]

    def step(column: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        rest, info = state
        pivot = jnp.real(rest[column, column])
        bad = (info == 0) & ~(pivot > 0)
        below = rest[:, column]
        safe = jnp.where(pivot > 0, pivot, 1).astype(rest.dtype)
        rest = rest - below[:, None] * jnp.conj(below)[None, :] / safe
        return rest, jnp.where(bad, column + 1, info).astype(jnp.int32)

    lower = jnp.tril(a)
    full = lower + adjoint(jnp.tril(a, -1))
    start = (full, jnp.zeros((), jnp.int32))
    info: jax.Array = lax.fori_loop(0, size, step, start)[1]
    return info


@rule("linalg_cholesky_ex")
def _cholesky_ex(
    ctx: RuleContext, a: jax.Array, *, upper: bool = False, check_errors: bool = False
) -> tuple[jax.Array, ...]:
    """Factor and ``info``: 0, or the order of the first minor that is not positive definite."""
    if a.size == 0:
        return empties(ctx)
    lower = adjoint(a) if upper else a  # only that triangle is read
    factor = linalg.cholesky(lower, symmetrize_input=False)
    failed = jnp.isnan(jnp.real(factor[..., -1, -1]))
    flat = lower.reshape(-1, *a.shape[-2:])
    # XLA does not say where a factorisation failed: look only if one did.
    info = lax.cond(
        jnp.any(failed),
        lambda: jax.vmap(_first_bad_minor)(flat),
        lambda: jnp.zeros(flat.shape[0], jnp.int32),
    )
    return adjoint(factor) if upper else factor, info.reshape(a.shape[:-2])


@rule("cholesky")
def _cholesky(ctx: RuleContext, a: jax.Array, upper: bool = False) -> jax.Array:
    if a.size == 0:
        return empties(ctx)[0]
    factor = linalg.cholesky(adjoint(a) if upper else a, symmetrize_input=False)
    return adjoint(factor) if upper else factor


@rule("linalg_qr")
def _qr(ctx: RuleContext, a: jax.Array, mode: str = "reduced") -> tuple[jax.Array, jax.Array]:
    """``mode`` is "reduced", "complete" or "r"; the last leaves Q empty."""
    if a.size == 0:
        q, r = empties(ctx)
        return (_identity(q) if mode != "r" else q), r
    q, r = linalg.qr(a, full_matrices=mode == "complete")
    return (q if mode != "r" else empties(ctx)[0]), r


@rule("linalg_householder_product", "orgqr")
def _householder_product(ctx: RuleContext, a: jax.Array, tau: jax.Array) -> jax.Array:
    return empties(ctx)[0] if a.size == 0 else linalg.householder_product(a, tau)


@rule("geqrf")
def _geqrf(ctx: RuleContext, a: jax.Array) -> tuple[jax.Array, ...]:
    """R above Householder vectors, and their factors, as LAPACK packs them."""
    if a.size == 0:
        return empties(ctx)
    packed, tau = jnp.linalg.qr(a, mode="raw")  # NumPy's raw mode returns the transpose
    return packed.mT, tau


@rule("ormqr")
def _ormqr(
    ctx: RuleContext,
    a: jax.Array,
    tau: jax.Array,
    c: jax.Array,
    left: bool = True,
    transpose: bool = False,
) -> jax.Array:
    """``c`` times the whole Q that ``a`` and ``tau`` stand for, or times its adjoint."""
    if c.size == 0 or tau.shape[-1] == 0:
        return c
    return linalg.ormqr(a, tau, c, left=left, transpose=transpose)


def _factors(
    ctx: RuleContext, a: jax.Array, full_matrices: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The singular value decomposition, with vectors."""
    if ctx.platform.name == "tpu":
        return singular_factors(a, full_matrices)
    u, s, vh = linalg.svd(a, full_matrices=full_matrices, compute_uv=True)
    return u, s, vh


@rule("_linalg_svd")
def _svd(
    ctx: RuleContext,
    a: jax.Array,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> tuple[jax.Array, ...]:
    u, s, vh = empties(ctx)
    if a.size == 0:
        if compute_uv:
            u, vh = _identity(u), _identity(vh)
        return u, s, vh
    single_on_tpu(ctx, a, "singular values")
    if compute_uv:
        u, s, vh = _factors(ctx, a, full_matrices)
        return u, s, vh
    return u, linalg.svd(a, full_matrices=False, compute_uv=False), vh


@rule("_linalg_eigh")
def _eigh(
    ctx: RuleContext, a: jax.Array, UPLO: str = "L", compute_v: bool = True
) -> tuple[jax.Array, ...]:
    """Eigenvalues ascending, and vectors; only the triangle that ``UPLO`` names is read."""
    values, vectors = empties(ctx)
    if a.size == 0:
        return values, vectors
    single_on_tpu(ctx, a, "eigenvectors")
    found, values = linalg.eigh(a, lower=UPLO.upper() == "L", symmetrize_input=False)
    return values, found if compute_v else vectors


def _only_on_cpu(ctx: RuleContext) -> None:
    if ctx.platform.name != "cpu":
        raise Unsupported("eigenvalues of a general matrix")


@rule("linalg_eig")
def _eig(ctx: RuleContext, a: jax.Array) -> tuple[jax.Array, ...]:
    _only_on_cpu(ctx)
    if a.size == 0:
        return empties(ctx)
    values, vectors = linalg.eig(a, compute_left_eigenvectors=False)
    return values, vectors


@rule("_linalg_eigvals", "linalg_eigvals")
def _eigvals(ctx: RuleContext, a: jax.Array) -> jax.Array:
    _only_on_cpu(ctx)
    if a.size == 0:
        return empties(ctx)[0]
    (values,) = linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)
    result: jax.Array = values
    return result


@rule("linalg_pinv.atol_rtol_tensor")
def _pseudo_inverse(
    ctx: RuleContext,
    a: jax.Array,
    *,
    atol: jax.Array | None = None,
    rtol: jax.Array | None = None,
    hermitian: bool = False,
) -> jax.Array:
    """Invert the singular values above ``max(atol, rtol * largest)``; the others become zero.

    Without tolerances ``rtol`` is epsilon times the larger dimension; a positive ``atol``
    alone replaces it by zero.
    """
    if a.size == 0:
        return empties(ctx)[0]
    single_on_tpu(ctx, a, "singular values")
    if hermitian:
        u, values = linalg.eigh(a, symmetrize_input=False)
        vh = adjoint(u)
    else:
        u, values, vh = _factors(ctx, a, full_matrices=False)
    size = jnp.abs(values)
    absolute = jnp.zeros((), size.dtype) if atol is None else atol.astype(size.dtype)
    if rtol is None:
        default = float(np.finfo(a.dtype).eps) * max(a.shape[-2:])
        relative = jnp.where(absolute > 0, 0, default).astype(size.dtype)
    else:
        relative = rtol.astype(size.dtype)
    limit = jnp.maximum(absolute, relative * jnp.max(size, -1))
    kept = size > limit[..., None]
    inverse = jnp.where(kept, 1 / jnp.where(kept, values, 1), 0)
    left = adjoint(vh) * inverse[..., None, :].astype(a.dtype)
    return jnp.matmul(left, adjoint(u), precision=precision(ctx))


@rule("linalg_matrix_exp")
def _matrix_exp(ctx: RuleContext, a: jax.Array) -> jax.Array:
    if a.size == 0:
        return a
    result: jax.Array = jax.scipy.linalg.expm(ctx.widened(a), max_squarings=32)
    return result


@rule("linalg_cross")
def _cross(ctx: RuleContext, a: jax.Array, b: jax.Array, *, dim: int = -1) -> jax.Array:
    """Cross products along ``dim``, which has size 3; the other dimensions broadcast."""
    a, b = ctx.computed(a, b)
    shape = jnp.broadcast_shapes(a.shape, b.shape)
    axis = dim % len(shape)
    x, y = (
        [lax.slice_in_dim(jnp.broadcast_to(v, shape), k, k + 1, axis=axis) for k in range(3)]
        for v in (a, b)
    )
    parts = [x[k - 2] * y[k - 1] - x[k - 1] * y[k - 2] for k in range(3)]
    return jnp.concatenate(parts, axis)


def triangular(
    a: jax.Array, b: jax.Array, *, left: bool = True, lower: bool, unit: bool = False, **how: Any
) -> jax.Array:
    """Solve with a triangular ``a``; batch dimensions broadcast."""
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = jnp.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = jnp.broadcast_to(b, (*batch, *b.shape[-2:]))
    if b.size == 0:
        return b
    return linalg.triangular_solve(a, b, left_side=left, lower=lower, unit_diagonal=unit, **how)
