"""The rules of factories, fills, copies and conversions agree with PyTorch's CPU."""

import math
from typing import Any

import pytest
import torch

from tests.backends.rule_harness import check, run, unreached

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
I64, I32, I16, I8, U8, BOOL = (
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint8, torch.bool),
)
C64, C128 = torch.complex64, torch.complex128
NAN, INF = math.nan, math.inf
DTYPES = (F32, F64, BF16, F16, I64, I32, I16, I8, U8, BOOL, C64, C128)

CASES: list[Any] = []


def case(name: str, *args: Any, **kwargs: Any) -> None:
    CASES.append(pytest.param(name, args, kwargs, id=f"{name}-{len(CASES)}"))


X = torch.randn(2, 3)
for dtype in (None, F32, BF16, I64, U8, BOOL, C64):
    case("zeros", [2, 3], dtype=dtype)
    case("ones", [2, 3], dtype=dtype)
    case("zeros_like", X, dtype=dtype)
    case("ones_like", X, dtype=dtype)
    case("new_zeros", X, [4], dtype=dtype)
    case("new_ones", X, [4], dtype=dtype)
    case("scalar_tensor", 3, dtype=dtype)
    case("full", [2, 0, 3], 1, dtype=dtype)
    case("full", [2, 3], 3, dtype=dtype)
    case("full_like", X, 2.5, dtype=dtype)
    case("new_full", X, [2], 2, dtype=dtype)
case("full", [3], -INF)
case("full", [3], 1 + 2j)
case("full", [], True)
case("full", [2], 2**62 + 1, dtype=I64)
case("zero", X)
case("zero_", X.clone())
case("_efficientzerotensor", [2, 3])
for dtype in (F32, F16, I64, BOOL, C64):
    case("fill.Scalar", X.to(dtype), 2.5)
    case("fill_.Scalar", X.to(dtype), 1)
    case("fill.Tensor", X.to(dtype), torch.tensor(2.75))
    case("fill_.Tensor", X.to(dtype), torch.tensor(True))

for name in ("clone", "lift", "lift_fresh", "lift_fresh_copy"):
    case(name, X)

for arguments in ((5,), (0,), (2.5,)):
    case("arange", *arguments)
case("arange", 5, dtype=BF16)
case("arange.start", 2, 7)
case("arange.start", 0.5, 4)
case("arange.start", -2.5, 4, dtype=I64)
case("arange.start_step", 0, 10, 3)
case("arange.start_step", 10, 0, -3)
case("arange.start_step", 0, 1, 0.1)
case("arange.start_step", 1, 2, 0.25, dtype=F16)
case("arange.start_step", 2**60, 2**60 + 9, 4)
case("arange.start_step", 0, 250, 50, dtype=U8)
case("range.step", 0, 5, 1.5)
case("range", 1, 5)
for dtype in (F32, F64, BF16, I64, U8, C64):
    case("linspace", 1, 10, 7, dtype=dtype)
    case("linspace", 1.7, 10.9, 4, dtype=dtype)
    case("logspace", 0, 2, 5, dtype=dtype)
case("linspace", -3, 3, 1)
case("linspace", -3, 3, 0)
case("linspace", -3, 1 + 2j, 4, dtype=C64)
case("logspace", -1, 3.5, 8, 2.0)
case("logspace", 0, 3, 1)
START, END = torch.tensor(-1.5), torch.tensor(2)
for name in ("linspace", "logspace"):
    case(f"{name}.Tensor_Tensor", START, END, 5)
    case(f"{name}.Tensor_Scalar", START, 2, 5)
    case(f"{name}.Scalar_Tensor", -1.5, END, 5)
case("eye", 3)
case("eye", 3, dtype=I64)
case("eye.m", 3, 5, dtype=BOOL)
case("eye.m", 5, 2)
for rows, columns, offset in ((4, 3, 0), (3, 5, 1), (5, 3, -2), (3, 3, -5), (2, 3, 9), (0, 3, 0)):
    case("tril_indices", rows, columns, offset)
    case("triu_indices", rows, columns, offset)
case("tril_indices", 3, 3, dtype=I32)

VALUES = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 2.75, 100.0, 3.0])
for source in DTYPES:
    for target in DTYPES:
        unsigned = U8 in (source, target)
        case("_to_copy", (VALUES.abs() if unsigned else VALUES).to(source), dtype=target)
case("_to_copy", torch.tensor([0j, 1j, 2 - 1j, complex(NAN, 0)]), dtype=BOOL)
case("_to_copy", torch.tensor([0.0, NAN, 1e-30, -0.0]), dtype=BOOL)
# Outside the integer's range C++ leaves the result open; these are what x86 gives.
HUGE = torch.tensor([NAN, INF, -INF, 300.0, -1.5, 3e9, -3e9, 1e20, 70000.0, -129.0])
LIMITS = torch.tensor([sign * 2.0**bits for bits in (7, 8, 15, 31, 63) for sign in (-1, 1)])
for target in (I8, U8, I16, I32, I64):
    case("_to_copy", HUGE, dtype=target)
    case("_to_copy", HUGE.double(), dtype=target)
    case("_to_copy", LIMITS, dtype=target)
    case("_to_copy", torch.tensor([2**40 + 7, -1, 300, -(2**63)]), dtype=target)
case("_to_copy", VALUES.abs(), dtype=torch.uint16)
case("_to_copy", VALUES.abs(), dtype=torch.uint32)
case("_to_copy", torch.tensor([0.0, 1.5, 1e19, -1.0]), dtype=torch.uint64)
for name in ("copy", "copy_"):
    case(name, torch.empty(2, 3), X.double())
    case(name, torch.empty(2, 3), torch.tensor([1, 2, 3]))
    case(name, torch.empty(2, 3, dtype=I64), X * 10)
    case(name, torch.empty(2, 3, dtype=C64), X)
    case(name, torch.empty(2, 3, dtype=BF16), torch.tensor(0.1))
    case(name, torch.empty(2, 3, dtype=BOOL), X > 0)


@pytest.mark.parametrize(("name", "args", "kwargs"), CASES)
def test_agrees_with_cpu(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    check(name, *args, **kwargs)


EMPTY: list[tuple[str, tuple[Any, ...]]] = [
    ("empty.memory_format", ([2, 3],)),
    ("empty_like", (X,)),
    ("empty_strided", ([2, 3], [3, 1])),
    ("new_empty", (X, [4])),
    ("new_empty_strided", (X, [2, 3], [3, 1])),
]


@pytest.mark.parametrize(("name", "args"), EMPTY)
def test_memory_nobody_wrote_is_zero(name: str, args: tuple[Any, ...]) -> None:
    (result,), (wanted,) = run(name, *args)
    assert torch.equal(result, torch.zeros_like(wanted))


def test_every_rule_is_reached() -> None:
    assert unreached("factories") == set()
