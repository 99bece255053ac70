"""LU factors, determinants, inverses and solutions of linear systems, batched.

PyTorch keeps the LU factors of a determinant for its gradient, and takes those of the
transpose where the matrix is real and contiguous (LAPACK reads columns). The gradient tells
the two apart by the strides of the matrix, so these rules ask ``ctx.contiguous``, and leave
the operator to the host where the context does not say.
"""

from __future__ import annotations

import numpy as np

from fuse.backends.numpy.rules.linalg import adjoint, empties, identity, triangular
from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray


def factor(a: Array) -> tuple[Array, Array, Array, Array]:
    """LU with partial pivoting: ``A[rows] = L U``, both triangles in one array.

    Also the row swaps, counted from 1 as LAPACK does, the row permutation, and ``info``:
    the number of the first pivot that is zero, or 0. A column is searched for the largest
    element, of complex ones by ``|re| + |im|`` (LAPACK's izamax).
    """
    lu = a.copy()
    batch, (height, width) = a.shape[:-2], a.shape[-2:]
    pivots = np.zeros((*batch, min(height, width)), np.int32)
    rows = np.broadcast_to(np.arange(height, dtype=np.int32), (*batch, height)).copy()
    info = np.zeros(batch, np.int32)
    for j in range(min(height, width)):
        column = lu[..., j:, j]
        chosen = j + np.argmax(np.abs(column.real) + np.abs(column.imag), axis=-1)
        pivots[..., j] = chosen + 1
        order = _swap(height, j, chosen)
        lu = np.take_along_axis(lu, order[..., None], axis=-2)
        rows = np.take_along_axis(rows, order, axis=-1)
        pivot = lu[..., j, j]
        info = np.where((pivot == 0) & (info == 0), j + 1, info).astype(np.int32)
        lu[..., j + 1 :, j] /= np.where(pivot == 0, 1, pivot)[..., None]  # all zero then
        lu[..., j + 1 :, j + 1 :] -= lu[..., j + 1 :, j, None] * lu[..., j, None, j + 1 :]
    return lu, pivots, rows, info


def _swap(rows: int, first: int, second: Array) -> Array:
    """The identity permutation with ``first`` and ``second[*]`` exchanged."""
    order = np.broadcast_to(np.arange(rows), (*second.shape, rows)).copy()
    order[..., first] = second
    np.put_along_axis(order, second[..., None], first, axis=-1)
    return order


def _permutation(pivots: Array, rows: int) -> Array:
    """The order of rows that successive swaps lead to."""
    order = np.broadcast_to(np.arange(rows), (*pivots.shape[:-1], rows)).copy()
    for step in range(pivots.shape[-1]):
        swap = _swap(rows, step, pivots[..., step].astype(np.int64) - 1)
        order = np.take_along_axis(order, swap, axis=-1)
    return order


def _permuted(b: Array, rows: Array) -> Array:
    """The rows of ``b`` in the order of ``rows``, batched."""
    batch = np.broadcast_shapes(b.shape[:-2], rows.shape[:-1])
    b = np.broadcast_to(b, (*batch, *b.shape[-2:]))
    return np.take_along_axis(b, np.broadcast_to(rows, (*batch, rows.shape[-1]))[..., None], -2)


def _solve_factored(lu: Array, rows: Array, b: Array, left: bool, conjugate: bool) -> Array:
    """Solve ``A X = B``, with the adjoint of A if ``conjugate``, or ``X A = B`` unless ``left``."""
    if not left:
        return adjoint(_solve_factored(lu, rows, adjoint(b), True, not conjugate))
    if not conjugate:
        y = triangular(lu, _permuted(b, rows), lower=True, unit=True)
        return triangular(lu, y, lower=False)
    y = triangular(adjoint(lu), b, lower=True)
    y = triangular(adjoint(lu), y, lower=False, unit=True)
    return _permuted(y, np.argsort(rows, axis=-1))


def _triangles(lu: Array) -> tuple[Array, Array]:
    """Unit lower ``[m, k]`` and upper ``[k, n]`` factors."""
    inner = min(lu.shape[-2:])
    lower = np.tril(lu[..., :inner], -1)
    return lower + identity(lower.shape, lu.dtype), np.triu(lu[..., :inner, :])


def _matrix(rows: Array, dtype: np.dtype) -> Array:
    """P with ``A = P L U``, from the order of rows that gives ``L U``."""
    size = rows.shape[-1]
    return (np.arange(size)[:, None] == rows[..., None, :]).astype(dtype)


def _refuse_no_pivots(*_arguments: object, pivot: bool = True, **_options: object) -> str | None:
    return None if pivot else "LU factors without pivots"


@rule("linalg_lu_factor_ex", refuse=_refuse_no_pivots)
def _lu_factor_ex(
    ctx: RuleContext, a: Array, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Array, Array, Array]:
    lu, pivots, _, info = factor(a)
    return lu, pivots, info


@rule("linalg_lu", refuse=_refuse_no_pivots)
def _lu(ctx: RuleContext, a: Array, *, pivot: bool = True) -> tuple[Array, Array, Array]:
    lu, _, rows, _ = factor(a)
    return _matrix(rows, a.dtype), *_triangles(lu)


@rule("lu_unpack")
def _lu_unpack(
    ctx: RuleContext,
    lu: Array,
    pivots: Array,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> tuple[Array, ...]:
    p, lower, upper = empties(ctx)
    if unpack_pivots:
        p = _matrix(_permutation(pivots, lu.shape[-2]), lu.dtype)
    if unpack_data:
        lower, upper = _triangles(lu)
    return p, lower, upper


@rule("linalg_lu_solve")
def _lu_solve(
    ctx: RuleContext,
    lu: Array,
    pivots: Array,
    b: Array,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> Array:
    return _solve_factored(lu, _permutation(pivots, lu.shape[-2]), b, left, adjoint)


@rule("_linalg_solve_ex")
def _solve_ex(
    ctx: RuleContext, a: Array, b: Array, *, left: bool = True, check_errors: bool = False
) -> tuple[Array, Array, Array, Array]:
    """``b`` is a batch of vectors where it has the shape of ``a`` without its last dimension."""
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    lu, pivots, rows, info = factor(a)
    x = _solve_factored(lu, rows, b[..., None] if vector else b, left or vector, False)
    return x[..., 0] if vector else x, lu, pivots, info


@rule("linalg_inv_ex")
def _inv_ex(ctx: RuleContext, a: Array, *, check_errors: bool = False) -> tuple[Array, Array]:
    lu, _, rows, info = factor(a)
    return _solve_factored(lu, rows, identity(a.shape, a.dtype), True, False), info


def _refuse_unknown_strides(ctx: RuleContext, a: Array) -> str | None:
    return None if ctx.contiguous else "the kept LU factors depend on strides"


def _kept_factors(ctx: RuleContext, a: Array) -> tuple[Array, Array, Array, Array]:
    """The factors PyTorch keeps, their pivots, the diagonal of U, the permutation's sign."""
    transposed = ctx.contiguous[0] and not np.iscomplexobj(a)
    lu, pivots, _, _ = factor(adjoint(a) if transposed else a)
    swaps = np.sum(pivots != np.arange(1, pivots.shape[-1] + 1), axis=-1)
    sign = np.where(swaps % 2 == 1, -1, 1).astype(lu.dtype)
    return lu, pivots, np.diagonal(lu, axis1=-2, axis2=-1), sign


@rule("_linalg_det", refuse=_refuse_unknown_strides)
def _det(ctx: RuleContext, a: Array) -> tuple[Array, Array, Array]:
    lu, pivots, diagonal, sign = _kept_factors(ctx, a)
    return np.prod(diagonal, axis=-1) * sign, lu, pivots


@rule("_linalg_slogdet", refuse=_refuse_unknown_strides)
def _slogdet(ctx: RuleContext, a: Array) -> tuple[Array, ...]:
    lu, pivots, diagonal, sign = _kept_factors(ctx, a)
    unit = np.prod(np.sign(diagonal), axis=-1) * sign  # of a complex number, its direction
    return unit, np.sum(np.log(np.abs(diagonal)), axis=-1), lu, pivots


@rule("triangular_solve")
def _triangular_solve(
    ctx: RuleContext,
    b: Array,
    a: Array,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Array, Array]:
    matrix = a.swapaxes(-1, -2) if transpose else a
    solution = triangular(matrix, b, lower=upper == transpose, unit=unitriangular)
    return solution, np.broadcast_to(a, ctx.out[1].shape)


@rule("linalg_solve_triangular")
def _solve_triangular(
    ctx: RuleContext,
    a: Array,
    b: Array,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Array:
    return triangular(a, b, left=left, lower=not upper, unit=unitriangular)


def _cholesky_solution(b: Array, a: Array, upper: bool) -> Array:
    lower = adjoint(a) if upper else a
    return triangular(adjoint(lower), triangular(lower, b, lower=True), lower=False)


@rule("cholesky_solve", "_cholesky_solve_helper")
def _cholesky_solve(ctx: RuleContext, b: Array, a: Array, upper: bool = False) -> Array:
    return _cholesky_solution(b, a, upper)


@rule("cholesky_inverse")
def _cholesky_inverse(ctx: RuleContext, a: Array, upper: bool = False) -> Array:
    return _cholesky_solution(identity(a.shape, a.dtype), a, upper)
