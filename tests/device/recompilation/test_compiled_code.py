"""What XLA makes of a chunk for the CPU: wide vectors, and products that copy no operand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fuse.backends.xla.backend import create
from fuse.backends.xla.executable import XlaExecutable
from tests.device.helpers import DEVICE
from tests.lanes import only_in

pytestmark = only_in("compiled", reason="the text of the CPU's executables")

UNARY = (
    torch.acos, torch.acosh, torch.asin, torch.asinh, torch.atan, torch.atanh, torch.ceil,
    torch.cos, torch.cosh, torch.digamma, torch.erf, torch.erfc, torch.erfinv, torch.exp,
    torch.exp2, torch.expm1, torch.floor, torch.lgamma, torch.log, torch.log10, torch.log1p,
    torch.log2, torch.reciprocal, torch.round, torch.rsqrt, torch.sigmoid, torch.sin, torch.sinc,
    torch.sinh, torch.sqrt, torch.tan, torch.tanh, torch.trunc, torch.nn.functional.gelu,
    torch.nn.functional.silu, torch.nn.functional.softplus,
)  # fmt: skip
WITH_ATAN = {
    "atan2 of ones": lambda x: torch.atan2(x, torch.ones_like(x)),
    "angle": lambda x: torch.angle(torch.complex(torch.ones_like(x), x)),
    "complex log": lambda x: torch.log(torch.complex(torch.ones_like(x), x)).imag,
    "complex atan": lambda x: torch.view_as_real(torch.atan(torch.complex(x, x))),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("function", UNARY, ids=lambda function: function.__name__)
def test_functions_over_many_numbers(
    function: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
):
    """More of them than fit in one vector: the loop's vectors and its rest."""
    for x in (
        torch.linspace(-3.97, 4.1, 1001, dtype=dtype),
        torch.linspace(0.01, 1, 67, dtype=dtype),
    ):
        torch.testing.assert_close(function(x.to(DEVICE)).cpu(), function(x), equal_nan=True)


@pytest.mark.parametrize("case", WITH_ATAN)
def test_what_becomes_an_arc_tangent(case: str):
    x = torch.linspace(-4, 4, 1001)
    torch.testing.assert_close(WITH_ATAN[case](x.to(DEVICE)).cpu(), WITH_ATAN[case](x))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs compiled from now on, after XLA's optimizations."""
    found: list[str] = []
    backend = create()
    compile_chunk = type(backend).compile

    def noted(self: object, chunk: object) -> XlaExecutable:
        executable: XlaExecutable = compile_chunk(self, chunk)  # type: ignore[arg-type]
        found.extend(module.to_string() for module in executable._loaded.hlo_modules())
        return executable

    monkeypatch.setattr(type(backend), "compile", noted)
    return found


ONE_ROW = {
    "linear": lambda w, v: torch.nn.functional.linear(v[None], w, w[:, 0]),
    "mv": lambda w, v: torch.mv(w.t(), w[:, 0]) + v,
    "addmv": lambda w, v: torch.addmv(v, w.t(), w[:, 1]),
    "a column": lambda w, v: w.t() @ w[:, :1] + 1,
    "a batch": lambda w, v: v.repeat(2, 1, 1) @ w.view(2, 28, 40).transpose(1, 2) + 1,
}


@pytest.mark.parametrize("case", ONE_ROW)
def test_a_product_of_one_row_copies_no_transposed_operand(case: str, compiled: list[str]):
    w, v = torch.randn(56, 40), torch.randn(40)
    expected = ONE_ROW[case](w, v)
    on_device = w.to(DEVICE), v.to(DEVICE)
    for _ in range(3):
        torch.testing.assert_close(ONE_ROW[case](*on_device).cpu(), expected)
    assert any(" dot(" in program for program in compiled)
    for program in compiled:
        assert "f32[40,56]" not in program
        assert "f32[2,40,28]" not in program
