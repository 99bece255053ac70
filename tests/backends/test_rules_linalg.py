"""Rules of linear algebra and Fourier transforms against PyTorch's CPU kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from fuse.backends.xla.rules.registry import RuleContext, Unsupported
from tests.backends import rule_harness
from tests.backends.rule_harness import check, run, unreached

_GENERATOR = torch.Generator().manual_seed(0)
FLOAT, DOUBLE, COMPLEX = torch.float32, torch.float64, torch.complex64
DTYPES = pytest.mark.parametrize("dtype", (FLOAT, COMPLEX), ids=str)
CHOLESKY = ["cholesky"] if hasattr(torch.ops.aten, "cholesky") else []  # gone from PyTorch 2.15


def r(*shape: int, dtype: torch.dtype = FLOAT) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=_GENERATOR)


def regular(*shape: int, dtype: torch.dtype = FLOAT) -> torch.Tensor:
    """A well-conditioned matrix."""
    return r(*shape, dtype=dtype) + 4 * torch.eye(shape[-2], shape[-1], dtype=dtype)


def positive(*shape: int, dtype: torch.dtype = FLOAT) -> torch.Tensor:
    a = r(*shape, dtype=dtype)
    return a @ a.mH + 2 * torch.eye(shape[-1], dtype=dtype)


@dataclass(frozen=True)
class StridedContext(RuleContext):
    """A context that knows which operands are contiguous."""

    contiguous: tuple[bool, ...] = (True, True)


@pytest.fixture
def contiguous(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    def set_to(value: bool) -> None:
        def make(**given: Any) -> RuleContext:
            return StridedContext(**given, contiguous=(value, True))

        monkeypatch.setattr(rule_harness, "RuleContext", make)

    return set_to


def close(result: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(result, want, rtol=1e-3, atol=1e-4)


@DTYPES
@pytest.mark.parametrize("upper", (False, True))
def test_cholesky(upper: bool, dtype: torch.dtype) -> None:
    a = positive(2, 4, 4, dtype=dtype)
    if CHOLESKY:
        check("cholesky", a, upper)
    check("linalg_cholesky_ex", a, upper=upper)
    check("linalg_cholesky_ex", a.triu() if upper else a.tril(), upper=upper)
    factor = torch.linalg.cholesky(a, upper=upper)
    check("cholesky_inverse", factor, upper)
    check("cholesky_solve", r(2, 4, 3, dtype=dtype), factor, upper)
    check("_cholesky_solve_helper", r(2, 4, 3, dtype=dtype), factor, upper)
    batches = torch.stack([factor[0], factor[1], factor[0]]).reshape(3, 1, 4, 4)
    check("cholesky_inverse", batches, upper)
    check("cholesky_solve", r(3, 1, 4, 2, dtype=dtype), batches, upper)


def test_cholesky_says_where_it_failed() -> None:
    a = torch.stack([torch.eye(4), torch.diag(torch.tensor([1.0, 2, -1, 3])), torch.zeros(4, 4)])
    (_, info), (_, want) = run("linalg_cholesky_ex", a)
    assert info.tolist() == want.tolist() == [0, 3, 1]


@DTYPES
@pytest.mark.parametrize("shape", ((4, 4), (2, 5, 3), (3, 5)))
def test_qr(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for mode in ("reduced", "complete", "r"):
        check("linalg_qr", r(*shape, dtype=dtype), mode)


def test_householder_product() -> None:
    a, tau = torch.geqrf(r(2, 5, 3))
    check("linalg_householder_product", a, tau)
    check("orgqr", a, tau)


@DTYPES
@pytest.mark.parametrize("shape", ((4, 4), (2, 5, 3), (3, 5), (0, 3), (2, 3, 0)))
def test_geqrf_packs_as_lapack_does(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    check("geqrf", r(*shape, dtype=dtype))


@DTYPES
@pytest.mark.parametrize("transpose", (False, True))
@pytest.mark.parametrize("left", (False, True))
def test_ormqr(left: bool, transpose: bool, dtype: torch.dtype) -> None:
    for shape in ((2, 5, 3), (4, 4)):
        a, tau = torch.geqrf(r(*shape, dtype=dtype))
        c = r(*shape[:-2], *((shape[-2], 2) if left else (2, shape[-2])), dtype=dtype)
        check("ormqr", a, tau, c, left, transpose)
    check("ormqr", a[..., :0], tau[..., :0], c, left, transpose)
    check("ormqr", a, tau, c[..., :0] if left else c[..., :0, :], left, transpose)


@DTYPES
@pytest.mark.parametrize("shape", ((4, 4), (2, 5, 3), (3, 5)))
@pytest.mark.parametrize("full", (False, True))
def test_svd(full: bool, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Singular vectors have no fixed phase: compare values, shapes and the product."""
    a = r(*shape, dtype=dtype)
    (u, s, vh), want = run("_linalg_svd", a, full, True)
    close(s, want[1])
    inner = s.shape[-1]
    close(u[..., :inner] * s[..., None, :].to(dtype) @ vh[..., :inner, :], a)
    identity = torch.eye(u.shape[-1], dtype=dtype)
    close(u.mH @ u, identity.expand(*shape[:-2], *identity.shape))
    check("_linalg_svd", a, full, False)


@pytest.mark.parametrize("dtype", (FLOAT, DOUBLE, COMPLEX), ids=str)
@pytest.mark.parametrize("triangle", ("L", "U"))
def test_eigh(triangle: str, dtype: torch.dtype) -> None:
    a = r(2, 4, 4, dtype=dtype)
    diagonal = torch.diagonal(a, dim1=-2, dim2=-1)
    a = a - torch.diag_embed(diagonal) + torch.diag_embed(diagonal.real.to(dtype))
    (values, vectors), want = run("_linalg_eigh", a, triangle, True)
    close(values, want[0])
    half = a.tril(-1) if triangle == "L" else a.triu(1)
    full = half + half.mH + torch.diag_embed(torch.diagonal(a, dim1=-2, dim2=-1))
    close(vectors * values[:, None].to(dtype) @ vectors.mH, full)
    check("_linalg_eigh", a, triangle, False)


@DTYPES
def test_eig(dtype: torch.dtype) -> None:
    a = r(2, 4, 4, dtype=dtype)
    (values, vectors), want = run("linalg_eig", a)
    close(a.to(values.dtype) @ vectors, vectors * values[:, None])
    close(values.abs().sort().values, want[0].abs().sort().values)
    for name in ("_linalg_eigvals", "linalg_eigvals"):
        (only,), _ = run(name, a)
        close(only.abs().sort().values, want[0].abs().sort().values)


@DTYPES
@pytest.mark.parametrize("shape", ((4, 4), (2, 5, 3), (3, 5)))
def test_lu(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    a = r(*shape, dtype=dtype)
    check("linalg_lu_factor_ex", a)
    check("linalg_lu", a)
    lu, pivots = torch.linalg.lu_factor(a)
    check("lu_unpack", lu, pivots)
    check("lu_unpack", lu, pivots, False, True)
    check("lu_unpack", lu, pivots, True, False)


@DTYPES
@pytest.mark.parametrize("conjugate", (False, True))
@pytest.mark.parametrize("left", (False, True))
def test_lu_solve(left: bool, conjugate: bool, dtype: torch.dtype) -> None:
    lu, pivots = torch.linalg.lu_factor(regular(2, 4, 4, dtype=dtype))
    b = r(3, 1, 4, 4, dtype=dtype)
    check("linalg_lu_solve", lu, pivots, b, left=left, adjoint=conjugate)


@pytest.mark.parametrize("dtype", (FLOAT, DOUBLE, COMPLEX), ids=str)
@pytest.mark.parametrize("dense", (True, False))
def test_solve(dense: bool, dtype: torch.dtype, contiguous: Callable[[bool], None]) -> None:
    contiguous(dense)
    a = regular(2, 4, 4, dtype=dtype)
    a = a if dense else a.mT
    check("_linalg_solve_ex", a, r(2, 4, 3, dtype=dtype))
    check("_linalg_solve_ex", a, r(2, 3, 4, dtype=dtype), left=False)
    check("_linalg_solve_ex", a, r(2, 4, dtype=dtype))
    check("_linalg_solve_ex", a, r(4, 2, 4, 1, dtype=dtype)[:1])
    check("_linalg_det", a)
    check("_linalg_slogdet", a)
    check("linalg_inv_ex", a)


def test_singular(contiguous: Callable[[bool], None]) -> None:
    contiguous(True)
    # Every step of the elimination is exact: with thirds, whether the second pivot is zero
    # depends on how the CPU at hand rounds.
    a = torch.tensor([[4.0, 2, 1], [2, 1, 3], [0, 0, 5]])
    check("_linalg_det", a)
    check("_linalg_slogdet", a)
    (_, info), (_, want) = run("linalg_inv_ex", torch.zeros(2, 2))
    assert info.tolist() == want.tolist() == 1
    check("linalg_lu_factor_ex", torch.diag(torch.tensor([1.0, 0, 2])))


@pytest.mark.parametrize("name", ("_linalg_det", "_linalg_slogdet"))
def test_factors_of_unknown_strides_are_refused(name: str) -> None:
    with pytest.raises(Unsupported, match="strides"):
        check(name, regular(3, 3))


@DTYPES
@pytest.mark.parametrize("unit", (False, True))
@pytest.mark.parametrize("upper", (False, True))
def test_triangular(upper: bool, unit: bool, dtype: torch.dtype) -> None:
    a = regular(2, 4, 4, dtype=dtype) / 4
    for left in (False, True):
        b = r(3, 1, 4, 4, dtype=dtype)
        check("linalg_solve_triangular", a, b, upper=upper, left=left, unitriangular=unit)
    check("triangular_solve", r(2, 4, 3, dtype=dtype), a, upper, False, unit)
    check("triangular_solve", r(2, 4, 3, dtype=dtype), a, upper, True, unit)


@DTYPES
def test_pseudo_inverse(dtype: torch.dtype) -> None:
    a, low = r(2, 5, 3, dtype=dtype), r(4, 1, dtype=dtype) @ r(1, 3, dtype=dtype)
    name = "linalg_pinv.atol_rtol_tensor"
    one = torch.tensor([0.5, 1.5])
    for matrix, options in (
        (a, {}),
        (low, {}),
        (a, {"atol": one}),
        (a, {"rtol": one / 3}),
        (a, {"atol": one, "rtol": one / 3}),
        (positive(2, 4, 4, dtype=dtype), {"hermitian": True}),
        (torch.empty(3, 0, dtype=dtype), {}),
    ):
        (result,), (want,) = run(name, matrix, **options)
        close(result, want)


@DTYPES
def test_matrix_exp(dtype: torch.dtype) -> None:
    results, want = run("linalg_matrix_exp", r(2, 4, 4, dtype=dtype))
    close(results[0], want[0])


@pytest.mark.parametrize("dtype", (FLOAT, torch.bfloat16, torch.int64), ids=str)
def test_cross(dtype: torch.dtype) -> None:
    a, b = (5 * r(2, 3, 4)).round().to(dtype), (5 * r(1, 3, 4)).round().to(dtype)
    check("linalg_cross", a, b, dim=1)
    check("linalg_cross", a.mT, b.mT)


def test_empty(contiguous: Callable[[bool], None]) -> None:
    contiguous(True)
    none = torch.empty(0, 3, 3)
    for name in (
        *CHOLESKY, "linalg_cholesky_ex", "linalg_qr", "_linalg_svd", "_linalg_eigh", "linalg_eig",
        "linalg_lu_factor_ex", "linalg_inv_ex", "_linalg_det", "_linalg_slogdet",
        "linalg_matrix_exp",
    ):  # fmt: skip
        check(name, none)
    for name in ("_linalg_det", "_linalg_slogdet", "linalg_inv_ex", "linalg_lu_factor_ex"):
        check(name, torch.empty(0, 0))
    check("_linalg_solve_ex", torch.empty(2, 0, 0), torch.empty(2, 0, 3))


FOURIER: list[tuple[tuple[int, ...], list[int]]] = [
    ((7,), [0]),
    ((3, 8), [1]),
    ((4, 3, 5), [0]),
    ((4, 3, 6), [0, 2]),
    ((2, 3, 4, 3, 2), [1, 0, 2, 4]),
]


@pytest.mark.parametrize("normalization", (0, 1, 2))
@pytest.mark.parametrize("shape, dims", FOURIER)
def test_fourier(shape: tuple[int, ...], dims: list[int], normalization: int) -> None:
    for forward in (True, False):
        check("_fft_c2c", r(*shape, dtype=COMPLEX), dims, normalization, forward)
    for onesided in (True, False):
        check("_fft_r2c", r(*shape), dims, normalization, onesided)
    half = torch.ops.aten._fft_r2c(r(*shape), dims, 0, True)
    check("_fft_c2r", half, dims, normalization, shape[dims[-1]])


def test_fourier_in_double_precision() -> None:
    check("_fft_r2c", r(3, 8, dtype=DOUBLE), [1], 1, True)
    check("_fft_c2c", r(3, 8, dtype=torch.complex128), [0, 1], 2, False)
    check("_fft_c2r", r(3, 5, dtype=torch.complex128), [1], 2, 8)


def test_every_rule_is_reached() -> None:
    assert unreached("linalg", "linalg_solve", "fft") == set()
