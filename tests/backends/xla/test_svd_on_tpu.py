"""The singular value decomposition as a TPU's programs have it, run on the CPU.

There the eigenvectors in its middle are LAPACK's; on a TPU they are the compiler's own.
"""

from __future__ import annotations

import jax
import pytest
import torch

from fuse.backends.xla.rules.polar import singular_factors
from fuse.backends.xla.rules.registry import RuleContext
from tests.backends.rule_harness import check, on_platform, run, to_array, to_tensor
from tests.marks import slow_but

FLOAT, COMPLEX = torch.float32, torch.complex64
DTYPES = pytest.mark.parametrize("dtype", slow_but([FLOAT], [FLOAT, COMPLEX]), ids=str)
SHAPES = [
    (1, 1),
    (4, 4),
    (5, 1),
    (1, 5),
    (10, 9),
    (9, 3),
    (3, 9),
    (2, 3, 4, 4),
    (2, 5, 3),
    (2, 3, 5),
]


@pytest.fixture(autouse=True)
def tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    on_platform("tpu", monkeypatch, RuleContext)


def r(*shape: int, dtype: torch.dtype = FLOAT) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def of_rank(rank: int, rows: int, columns: int, dtype: torch.dtype = FLOAT) -> torch.Tensor:
    return r(rows, rank, dtype=dtype) @ r(rank, columns, dtype=dtype)


def check_factors(a: torch.Tensor, full: bool) -> None:
    """Orthonormal factors of ``a`` with PyTorch's singular values, to a few units of rounding."""
    (u, s, vh), (_, values, _) = run("_linalg_svd", a, full, True)
    largest = values.max() if values.numel() else values.sum()
    error = 4 * torch.finfo(s.dtype).eps * max(a.shape[-2:])
    within = {"rtol": 0.0, "atol": error * float(largest)}
    torch.testing.assert_close(s, values, **within)
    used = s.shape[-1]
    product = u[..., :used] * s[..., None, :].to(a.dtype) @ vh[..., :used, :]
    torch.testing.assert_close(product, a, **within)
    for square in (u.mH @ u, vh @ vh.mH):
        identity = torch.eye(square.shape[-1], dtype=a.dtype).expand_as(square)
        torch.testing.assert_close(square, identity, rtol=0.0, atol=error)


@DTYPES
@pytest.mark.parametrize("full", (False, True))
@pytest.mark.parametrize("shape", slow_but([(10, 9), (2, 3, 5)], SHAPES), ids=str)
def test_factors(shape: tuple[int, ...], full: bool, dtype: torch.dtype) -> None:
    check_factors(r(*shape, dtype=dtype), full)
    check("_linalg_svd", r(*shape, dtype=dtype), full, False)


@pytest.mark.parametrize("full", (False, True))
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (0, 3, 2), (2, 3, 0)], ids=str)
def test_factors_of_nothing(shape: tuple[int, ...], full: bool) -> None:
    check_factors(torch.zeros(shape), full)


LACKING = {
    "square": lambda dtype: of_rank(3, 7, 7, dtype),
    "rank 1": lambda dtype: torch.ones(6, 6, dtype=dtype),
    "tall": lambda dtype: of_rank(2, 9, 4, dtype),
    "wide": lambda dtype: of_rank(2, 4, 9, dtype),
    "one less": lambda dtype: of_rank(39, 40, 40, dtype),
    "zero": lambda dtype: torch.zeros(5, 3, dtype=dtype),
    "of all sizes": lambda dtype: torch.diag(torch.tensor([0, 1e5, 1, 0, 1e-3, 1e-8])).to(dtype),
    "some of a batch": lambda dtype: torch.stack(
        [torch.zeros(4, 4, dtype=dtype), r(4, 4, dtype=dtype), of_rank(1, 4, 4, dtype)]
    ),
    "equal values": lambda dtype: torch.eye(6, dtype=dtype),
    "tiny": lambda dtype: 1e-18 * r(5, 5, dtype=dtype),
    "huge": lambda dtype: 1e18 * r(5, 5, dtype=dtype),
}


@DTYPES
@pytest.mark.parametrize("full", (False, True))
@pytest.mark.parametrize("which", slow_but(["tall", "some of a batch"], LACKING))
def test_factors_of_a_matrix_that_lacks_rank(which: str, full: bool, dtype: torch.dtype) -> None:
    check_factors(LACKING[which](dtype), full)


@pytest.mark.parametrize("bad", (float("nan"), float("inf")))
def test_a_matrix_that_is_not_finite_gives_nan_and_its_neighbour_does_not(bad: float) -> None:
    a = torch.stack([torch.eye(2), torch.tensor([[1.0, 2.0], [bad, 3.0]])])
    for value in map(to_tensor, singular_factors(to_array(a), True)):
        assert value[1].isnan().all()
        assert value[0].isfinite().all()


@pytest.mark.parametrize("dtype", (FLOAT, COMPLEX), ids=str)
@pytest.mark.parametrize(
    "shape", slow_but([(2, 5, 3)], [(4, 4), (2, 5, 3), (2, 3, 5), (0, 3)]), ids=str
)
def test_pseudo_inverse(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    name = "linalg_pinv.atol_rtol_tensor"
    check(name, r(*shape, dtype=dtype))
    check(name, r(*shape, dtype=dtype), atol=torch.tensor(0.5))
    if 0 not in shape:
        (found,), _ = run(name, of_rank(1, 4, 4, dtype))
        expected = torch.linalg.pinv(of_rank(1, 4, 4, dtype))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_no_product_of_the_program_has_64_bit_integers() -> None:
    """Of a product of float32 by int64 the compiler ends its process."""
    with jax.enable_x64(True):
        traced = jax.jit(singular_factors, static_argnums=1).trace(to_array(r(5, 4)), True)
        text = traced.lower(lowering_platforms=("tpu",)).as_text()
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert products
    assert not [line for line in products if "xi64>" in line]
