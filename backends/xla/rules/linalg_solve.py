"""LU factors, determinants, inverses and solutions of linear systems, batched.

PyTorch keeps the LU factors of a determinant for its gradient, and takes those of the
transpose where the matrix is real and contiguous (LAPACK reads columns). The gradient
tells the two apart by the strides of the matrix, so the rules must too: they ask
``ctx.contiguous``, one truth value a tensor operand, and leave the operator to the
host where the context does not say.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.lax import linalg

from fuse.backends.xla.rules.linalg import adjoint, empties, single_on_tpu, triangular
from fuse.backends.xla.rules.registry import RuleContext, Unsupported, always, rule


def factor(ctx: RuleContext, a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """LU, row swaps from 1 as LAPACK counts them, row permutation, and first zero pivot or 0."""
    if a.size == 0:
        batch, size = a.shape[:-2], min(a.shape[-2:])
        pivots = jnp.zeros((*batch, size), jnp.int32)
        rows = jnp.broadcast_to(jnp.arange(a.shape[-2], dtype=jnp.int32), (*batch, a.shape[-2]))
        return a, pivots, rows, jnp.zeros(batch, jnp.int32)
    single_on_tpu(ctx, a, "LU factors")
    lu, pivots, permutation = linalg.lu(a)
    zero = jnp.diagonal(lu, axis1=-2, axis2=-1) == 0
    first = jnp.argmax(zero, -1).astype(jnp.int32) + 1
    info = jnp.where(jnp.any(zero, -1), first, 0)
    return lu, pivots + 1, permutation, info


def _permuted(b: jax.Array, permutation: jax.Array) -> jax.Array:
    """Rows of ``b`` in the order of ``permutation``, batched."""
    return jnp.take_along_axis(b, permutation[..., None], axis=-2, mode="clip")


def _solve_factored(
    lu: jax.Array, permutation: jax.Array, b: jax.Array, left: bool, conjugate: bool
) -> jax.Array:
    """Solve ``A X = B``, with the adjoint of A if ``conjugate``, or ``X A = B`` unless ``left``."""
    if not left:
        return adjoint(_solve_factored(lu, permutation, adjoint(b), True, not conjugate))
    batch = jnp.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    b = jnp.broadcast_to(b, (*batch, *b.shape[-2:]))
    permutation = jnp.broadcast_to(permutation, (*batch, permutation.shape[-1]))
    if b.size == 0:
        return b
    if not conjugate:
        y = triangular(lu, _permuted(b, permutation), lower=True, unit=True)
        return triangular(lu, y, lower=False)
    how = {"transpose_a": True, "conjugate_a": True}
    y = triangular(lu, b, lower=False, **how)
    y = triangular(lu, y, lower=True, unit=True, **how)
    return _permuted(y, jnp.argsort(permutation, axis=-1))


def _needs_pivots(pivot: bool) -> None:
    if not pivot:
        raise Unsupported("LU factors without pivots")


def _factors_transpose(ctx: RuleContext, a: jax.Array) -> bool:
    contiguous = ctx.contiguous
    if not contiguous:
        raise Unsupported("the kept LU factors depend on strides")
    return bool(contiguous[0]) and not jnp.issubdtype(a.dtype, jnp.complexfloating)


def _matrix(permutation: jax.Array, dtype: jax.typing.DTypeLike) -> jax.Array:
    """P with ``A = P L U``, from the permutation of rows that gives ``L U``."""
    rows = permutation.shape[-1]
    return jax.nn.one_hot(permutation, rows, dtype=dtype, axis=-2)


def _triangles(lu: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Unit lower ``[m, k]`` and upper ``[k, n]`` factors."""
    rows, columns = lu.shape[-2:]
    inner = min(rows, columns)
    lower = jnp.tril(lu[..., :inner], -1) + jnp.eye(rows, inner, dtype=lu.dtype)
    return lower, jnp.triu(lu[..., :inner, :])


@rule("linalg_lu_factor_ex", may_refuse=always)
def _lu_factor_ex(
    ctx: RuleContext, a: jax.Array, *, pivot: bool = True, check_errors: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array]:
    _needs_pivots(pivot)
    lu, pivots, _, info = factor(ctx, a)
    return lu, pivots, info


@rule("linalg_lu", may_refuse=always)
def _lu(
    ctx: RuleContext, a: jax.Array, *, pivot: bool = True
) -> tuple[jax.Array, jax.Array, jax.Array]:
    _needs_pivots(pivot)
    lu, _, permutation, _ = factor(ctx, a)
    return _matrix(permutation, a.dtype), *_triangles(lu)


@rule("lu_unpack")
def _lu_unpack(
    ctx: RuleContext,
    lu: jax.Array,
    pivots: jax.Array,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> tuple[jax.Array, ...]:
    p, lower, upper = empties(ctx)
    if unpack_pivots and p.size:
        p = _matrix(_permutation(pivots, lu.shape[-2]), lu.dtype)
    if unpack_data:
        lower, upper = _triangles(lu)
    return p, lower, upper


def _permutation(pivots: jax.Array, rows: int) -> jax.Array:
    if pivots.size == 0:
        identity = jnp.arange(rows, dtype=jnp.int32)
        return jnp.broadcast_to(identity, (*pivots.shape[:-1], rows))
    return linalg.lu_pivots_to_permutation(pivots - 1, rows)


@rule("linalg_lu_solve")
def _lu_solve(
    ctx: RuleContext,
    lu: jax.Array,
    pivots: jax.Array,
    b: jax.Array,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> jax.Array:
    return _solve_factored(lu, _permutation(pivots, lu.shape[-2]), b, left, adjoint)


@rule("_linalg_solve_ex")
def _solve_ex(
    ctx: RuleContext,
    a: jax.Array,
    b: jax.Array,
    *,
    left: bool = True,
    check_errors: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """``b`` is a batch of vectors where it has the shape of ``a`` without its last dimension."""
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    lu, pivots, permutation, info = factor(ctx, a)
    columns = b[..., None] if vector else b
    x = _solve_factored(lu, permutation, columns, left or vector, False)
    return x[..., 0] if vector else x, lu, pivots, info


@rule("linalg_inv_ex")
def _inv_ex(
    ctx: RuleContext, a: jax.Array, *, check_errors: bool = False
) -> tuple[jax.Array, jax.Array]:
    lu, _, permutation, info = factor(ctx, a)
    identity = jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return _solve_factored(lu, permutation, identity, True, False), info


def _signed(lu: jax.Array, pivots: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The diagonal of U and the sign of the permutation."""
    swaps = pivots != jnp.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype)
    odd = jnp.sum(swaps, -1) % 2 == 1
    return jnp.diagonal(lu, axis1=-2, axis2=-1), jnp.where(odd, -1, 1).astype(lu.dtype)


@rule("_linalg_det", may_refuse=always)
def _det(ctx: RuleContext, a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    transposed = _factors_transpose(ctx, a)
    lu, pivots, _, _ = factor(ctx, adjoint(a) if transposed else a)
    diagonal, sign = _signed(lu, pivots)
    return jnp.prod(diagonal, -1) * sign, lu, pivots


@rule("_linalg_slogdet", may_refuse=always)
def _slogdet(ctx: RuleContext, a: jax.Array) -> tuple[jax.Array, ...]:
    transposed = _factors_transpose(ctx, a)
    lu, pivots, _, _ = factor(ctx, adjoint(a) if transposed else a)
    diagonal, sign = _signed(lu, pivots)
    size = jnp.abs(diagonal)
    unit = jnp.prod(jnp.sign(diagonal), -1) * sign
    return unit, jnp.sum(jnp.log(size), -1), lu, pivots


@rule("triangular_solve")
def _triangular_solve(
    ctx: RuleContext,
    b: jax.Array,
    a: jax.Array,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[jax.Array, jax.Array]:
    solution = triangular(a, b, lower=not upper, unit=unitriangular, transpose_a=transpose)
    return solution, jnp.broadcast_to(a, ctx.out[1].shape)


@rule("linalg_solve_triangular")
def _solve_triangular(
    ctx: RuleContext,
    a: jax.Array,
    b: jax.Array,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> jax.Array:
    return triangular(a, b, left=left, lower=not upper, unit=unitriangular)


def _cholesky_solution(b: jax.Array, a: jax.Array, upper: bool) -> jax.Array:
    how = {"transpose_a": True, "conjugate_a": True}
    first, second = (how, {}) if upper else ({}, how)
    y = triangular(a, b, lower=not upper, **first)
    return triangular(a, y, lower=not upper, **second)


@rule("cholesky_solve", "_cholesky_solve_helper")
def _cholesky_solve(ctx: RuleContext, b: jax.Array, a: jax.Array, upper: bool = False) -> jax.Array:
    return _cholesky_solution(b, a, upper)


@rule("cholesky_inverse")
def _cholesky_inverse(ctx: RuleContext, a: jax.Array, upper: bool = False) -> jax.Array:
    identity = jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return _cholesky_solution(identity, a, upper)
