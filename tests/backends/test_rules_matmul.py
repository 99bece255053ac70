"""Rules of matrix products against PyTorch's CPU kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fuse.backends.xla.rules.registry import RuleContext, Unsupported
from fuse.trace.spec import TensorSpec
from tests.backends.rule_harness import RULES, check, run, to_array, to_tensor, unreached

_GENERATOR = torch.Generator().manual_seed(0)
FLOAT, HALF, BF16, DOUBLE = torch.float32, torch.float16, torch.bfloat16, torch.float64
INT, BYTE, COMPLEX = torch.int64, torch.uint8, torch.complex64


def r(*shape: int, dtype: torch.dtype = FLOAT) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.rand(shape, generator=_GENERATOR) > 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        low = 0 if dtype == BYTE else -40
        return torch.randint(low, 90, shape, generator=_GENERATOR).to(dtype)
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype, generator=_GENERATOR)
    return torch.randn(shape, generator=_GENERATOR).to(dtype)


NAN = float("nan")
DTYPES = (FLOAT, DOUBLE, HALF, BF16, INT, BYTE, torch.int8, COMPLEX)
PRODUCTS: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
    ("mm", ((5, 7), (7, 4))),
    ("mm", ((16, 9), (9, 12))),
    ("mm", ((5, 0), (0, 4))),
    ("bmm", ((3, 5, 7), (3, 7, 4))),
    ("bmm", ((2, 9, 7), (2, 7, 8))),
    ("mv", ((5, 7), (7,))),
    ("dot", ((9,), (9,))),
    ("vdot", ((9,), (9,))),
]
ADDITIONS: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
    ("addmm", ((5, 4), (5, 7), (7, 4))),
    ("addmm", ((4,), (5, 7), (7, 4))),
    ("addmm", ((), (9, 7), (7, 8))),
    ("baddbmm", ((3, 5, 4), (3, 5, 7), (3, 7, 4))),
    ("baddbmm", ((4,), (3, 5, 7), (3, 7, 4))),
    ("addbmm", ((5, 4), (3, 5, 7), (3, 7, 4))),
    ("addmv", ((5,), (5, 7), (7,))),
    ("addr", ((5, 7), (5,), (7,))),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name, shapes", PRODUCTS)
def test_product(name: str, shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype) -> None:
    check(name, *(r(*shape, dtype=dtype) for shape in shapes))


@pytest.mark.parametrize("dtype", (FLOAT, BF16, INT, COMPLEX), ids=str)
@pytest.mark.parametrize("factors", ({}, {"beta": 0}, {"beta": 3, "alpha": 2}), ids=str)
@pytest.mark.parametrize("name, shapes", ADDITIONS)
def test_addition(
    name: str, shapes: tuple[tuple[int, ...], ...], factors: dict[str, Any], dtype: torch.dtype
) -> None:
    # PyTorch rounds addbmm to the dtype after every product of the batch, the rule once.
    tolerance = (0.03, 0.1) if (name, dtype) == ("addbmm", BF16) else None
    check(name, *(r(*shape, dtype=dtype) for shape in shapes), tolerance=tolerance, **factors)


@pytest.mark.parametrize("name, shapes", ADDITIONS)
def test_zero_beta_ignores_nan(name: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    base = torch.full(shapes[0], NAN)
    check(name, base, *(r(*shape) for shape in shapes[1:]), beta=0, alpha=0.5)


@pytest.mark.parametrize("alpha", (True, False))
@pytest.mark.parametrize("beta", (True, False))
def test_addr_of_booleans(beta: bool, alpha: bool) -> None:
    operands = (r(5, 7, dtype=torch.bool), r(5, dtype=torch.bool), r(7, dtype=torch.bool))
    check("addr", *operands, beta=beta, alpha=alpha)


def test_addr_promotes() -> None:
    check("addr", r(5, 7, dtype=INT), r(5), r(7, dtype=INT), beta=2, alpha=3)


@pytest.mark.parametrize("use_gelu", (False, True))
def test_addmm_activation(use_gelu: bool) -> None:
    check("_addmm_activation", r(4), r(5, 7), r(7, 4), beta=0.5, alpha=2, use_gelu=use_gelu)


def test_int_mm() -> None:
    check("_int_mm", r(32, 64, dtype=torch.int8), r(64, 16, dtype=torch.int8))


@pytest.mark.parametrize("dtype", (FLOAT, BF16), ids=str)
def test_trilinear(dtype: torch.dtype) -> None:
    operands = (r(6, 3, dtype=dtype), r(4, 3, 5, dtype=dtype), r(6, 5, dtype=dtype))
    check("_trilinear", *operands, [1, 3], [0], [1, 2], [2, 3])


def test_every_rule_is_registered() -> None:
    names = {name for name, _ in PRODUCTS + ADDITIONS}
    assert names | {"_addmm_activation", "_int_mm", "_trilinear"} <= set(RULES)


@pytest.mark.parametrize("bias", (None, r(8).bfloat16()))
@pytest.mark.parametrize("dtype", (torch.float8_e4m3fn, torch.float8_e5m2))
def test_scaled_products_of_8_bit_floats(dtype: torch.dtype, bias: torch.Tensor | None) -> None:
    x, y = r(4, 16).to(dtype), r(8, 16).to(torch.float8_e4m3fn).t()
    for scale in (0.5, 3.0):
        one, two = torch.tensor(scale), torch.tensor([1.25])
        check("_scaled_mm", x, y, one, two, bias, None, BF16)
        check("_scaled_mm", x, y, one, two, bias, None, FLOAT)
        check("_scaled_mm_v2", x, y, [one], [0], [0], [two], [0], [0], bias, BF16)
    rows, columns = r(4, 1).abs() + 1, r(1, 8).abs() + 1
    check("_scaled_mm_v2", x, y, [rows], [1], [0], [columns], [1], [0], bias, BF16)


# flags() sets that of Intel's GPUs too, which warns once where there are none.
@pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")
@pytest.mark.parametrize("dtype", (torch.float8_e4m3fn, torch.float8_e5m2))
def test_scaled_products_saturate_or_overflow(dtype: torch.dtype) -> None:
    x, y = r(4, 16).to(dtype), r(8, 16).to(torch.float8_e4m3fn).t()
    for scale in (1.0, 1e6):
        for divisor in (None, torch.tensor(0.25)):
            one = torch.tensor(1.0)
            # On some CPUs oneDNN makes NaN of what saturates on others: the reference is ATen's.
            with torch.backends.mkldnn.flags(enabled=False):
                (result,), (want,) = run(
                    "_scaled_mm", x, y, torch.tensor(scale), one, None, divisor
                )
            assert result.dtype == want.dtype == dtype
            # A step of the narrow dtype is an eighth or a quarter.
            torch.testing.assert_close(result.float(), want.float(), rtol=0.25, atol=1e-3)


def test_scales_of_blocks_are_refused() -> None:
    x, y, one = (to_array(r(2, 2)) for _ in range(3))
    with pytest.raises(Unsupported, match="blocks"):
        RULES["_scaled_mm_v2"](
            RuleContext((), "float32"), x, y, [one], (2,), (0,), [one], (0,), (0,)
        )


@pytest.mark.parametrize("dtype", (HALF, BF16), ids=str)
def test_products_of_half_precision_in_float32(dtype: torch.dtype) -> None:
    """PyTorch has these on CUDA alone: compare with the product of widened operands."""
    x, y, base = r(3, 4, 5, dtype=dtype), r(3, 5, 2, dtype=dtype), r(3, 4, 2)
    for name, expected, operands in (
        ("mm.dtype", x[0].float() @ y[0].float(), (x[0], y[0])),
        ("bmm.dtype", x.float() @ y.float(), (x, y)),
        ("addmm.dtype", base[0] + x[0].float() @ y[0].float(), (base[0], x[0], y[0])),
        ("baddbmm.dtype", base + x.float() @ y.float(), (base, x, y)),
    ):
        context = RuleContext((TensorSpec("float32", tuple(expected.shape)),), "float32")
        result = RULES[name](context, *map(to_array, operands), "float32")
        assert result.dtype == "float32"
        torch.testing.assert_close(to_tensor(result), expected)


def test_every_rule_is_reached() -> None:
    assert unreached("matmul") == set()
