"""The rules of arithmetic, comparison and elementary functions agree with PyTorch's CPU."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from fuse.backends.xla.rules import pointwise
from fuse.backends.xla.rules.context import RuleContext
from fuse.backends.xla.rules.registry import Unsupported
from fuse.trace.spec import TensorSpec
from tests.backends.rule_harness import RULES, check, find, run, to_array, to_tensor, unreached

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
I64, I32, U8, BOOL, C64 = torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64

NAN, INF = math.nan, math.inf
REALS = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 8.0, 1e-3, -7.25, 1e5, NAN, INF, -INF]
)
COMPLEX = torch.tensor([1 + 2j, -0.5 + 0.25j, 0.75 - 1.5j, -2 - 0.125j, 0.3 + 0j, 0j])
INTS = torch.tensor([0, 1, -1, 2, -3, 7, -8, 100, 2**40, -(2**63), 2**63 - 1])
BYTES = torch.tensor([0, 1, 2, 3, 100, 128, 200, 255], dtype=U8)
BOOLS = torch.tensor([True, False, True])
SPECIMENS = {F32: REALS, BF16: REALS.bfloat16(), C64: COMPLEX, I64: INTS, U8: BYTES, BOOL: BOOLS}


def pair(dtype: torch.dtype, *, nonzero: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Every specimen against every other: [n, 1] and [1, n]."""
    values = SPECIMENS[dtype]
    if dtype == I64:  # dividing the smallest integer by -1 traps in PyTorch itself
        values = values[(values > -(2**41)) & (values < 2**41)]
    other = values[values != 0] if nonzero else values
    return values[:, None], other[None]


CASES: list[Any] = []


def case(name: str, *args: Any, **kwargs: Any) -> None:
    label = "-".join(str(a.dtype)[6:] if isinstance(a, torch.Tensor) else str(a) for a in args)
    CASES.append(pytest.param(name, args, kwargs, id=f"{name}-{label}-{len(CASES)}"))


# --- arithmetic --------------------------------------------------------------

for dtype in (F32, BF16, I64, U8, BOOL, C64):
    x, y = pair(dtype)
    case("add.Tensor", x, y)
    case("mul.Tensor", x, y)
    if dtype != BOOL:
        case("sub.Tensor", x, y)
        case("sub.Tensor", x, y, alpha=3)
for dtype in (F32, I64, C64):
    x, y = pair(dtype)
    case("add.Tensor", x, y, alpha=2)
    case("addcmul", x, y, x + 1, value=2)
    case("rsub.Tensor", x, y, alpha=2)
    case("rsub.Scalar", x, 3, 2)
case("add.Tensor", BOOLS[:, None], BOOLS, alpha=True)
case("add.Tensor", INTS, torch.tensor(2.5))
case("add.Tensor", REALS, torch.tensor(2, dtype=F64))
case("add.Tensor", REALS.bfloat16(), torch.tensor(0.1))
case("add.Tensor", BYTES, torch.tensor(-1))
case("add.Scalar", REALS, 0.1, 3)
case("add.Scalar", INTS, 2.5)
case("add.Scalar", INTS, 3)
case("add.Scalar", REALS, 1 + 2j)
case("add.Scalar", BYTES, -1)
case("sub.Scalar", REALS.bfloat16(), 0.1, 2)
case("mul.Scalar", REALS, 0.1)
case("mul.Scalar", BOOLS, 2)
case("addcmul", REALS.bfloat16(), REALS.bfloat16(), REALS.bfloat16(), value=0.3)
case("addcdiv", REALS, REALS, torch.linspace(-2, 2, 17), value=0.7)
case("addcdiv", COMPLEX, COMPLEX, COMPLEX + 1, value=0.7)
for weight in (-2.0, 0.25, 0.5, 1.0, 3.0):
    case("lerp.Scalar", REALS[:-3, None], REALS[:-3], weight)
case("lerp.Tensor", REALS[:-3, None], REALS[:-3], torch.linspace(-1, 2, 14))
case("lerp.Tensor", COMPLEX, COMPLEX.flip(0), COMPLEX)
case("lerp.Tensor", REALS[:-3].bfloat16(), REALS[:-3].flip(0).bfloat16(), torch.rand(14).bfloat16())

# --- division ----------------------------------------------------------------

for dtype in (F32, BF16, I64, U8):
    x, y = pair(dtype, nonzero=not dtype.is_floating_point)
    case("div.Tensor", x, y)
    for mode in (None, "trunc", "floor"):
        case("div.Tensor_mode", x, y, rounding_mode=mode)
    case("floor_divide", x, y)
    case("remainder.Tensor", x, y)
    case("fmod.Tensor", x, y)
case("div.Tensor", INTS, torch.tensor(0))
for dtype in (F32, F64):
    whole = torch.arange(1, 300, dtype=dtype)
    case("div.Tensor_mode", whole[:, None] * 7, whole, rounding_mode="trunc")
    case("div.Scalar_mode", whole * 49, 49.0, rounding_mode="trunc")
    case("div.Tensor_mode", whole[:, None] * 7, whole, rounding_mode="floor")
case("div.Tensor", BOOLS, torch.tensor([True, True, False]))
case("div.Tensor", COMPLEX[:-1, None], COMPLEX[:-1])
case("div.Scalar", INTS, 3)
case("div.Scalar", REALS, 0.3)
case("div.Scalar_mode", REALS, 0.3, rounding_mode="floor")
case("div.Scalar_mode", INTS, -3, rounding_mode="floor")
case("div.Scalar_mode", INTS, -3, rounding_mode="trunc")
case("floor_divide.Scalar", REALS, -0.7)
for operand in (REALS, INTS):
    case("remainder.Scalar", operand, -3)
    case("fmod.Scalar", operand, -3)
case("remainder.Scalar_Tensor", -7, torch.tensor([1, 2, -3, 5]))
case("remainder.Scalar_Tensor", -7.5, REALS)

# --- powers ------------------------------------------------------------------

for exponent in (0, 1, 2, 3, 4, 7, 0.5, 1.5, 2.5, 0.3, -1.5, -0.5, -1, -2, -3.0, 2.0, INF, NAN):
    case("pow.Tensor_Scalar", REALS, exponent)
for exponent in (0, 1, 2, 5, 63, 0.5, -1.0):
    case("pow.Tensor_Scalar", INTS, exponent)
for exponent in (2, 3, 0.5, 1.25, 1 + 2j):
    case("pow.Tensor_Scalar", COMPLEX, exponent)
case("pow.Tensor_Scalar", COMPLEX[:-1], -1)
case("pow.Tensor_Scalar", BOOLS, True)
case("pow.Tensor_Scalar", BYTES, 3)
case("pow.Tensor_Scalar", REALS.bfloat16(), 3)
case("pow.Tensor_Scalar", REALS, 1 + 2j)
case("pow.Tensor_Tensor", *pair(F32))
case("pow.Tensor_Tensor", *pair(BF16))
case("pow.Tensor_Tensor", *pair(U8))
case("pow.Tensor_Tensor", COMPLEX[:-1, None], COMPLEX[:-1])
case("pow.Tensor_Tensor", torch.arange(-4, 5)[:, None], torch.arange(-9, 70))
for base in (2, 1, 0.0, -2.5, 10.0):
    case("pow.Scalar", base, REALS)
case("pow.Scalar", -3, torch.arange(0, 20))

# --- two operands ------------------------------------------------------------

for name in ("atan2", "hypot", "copysign.Tensor", "logaddexp", "logaddexp2"):
    case(name, *pair(F32))
    case(name, *pair(BF16))
for name in ("atan2", "copysign.Tensor"):
    case(name, *pair(I64))
case("hypot", torch.tensor([3e38, 1e-30]), torch.tensor([3e38, 1e-30]))
case("copysign.Scalar", REALS, -1.0)
case("ldexp.Tensor", REALS, torch.arange(-8, 9))
case("nextafter", *pair(F32))
case("nextafter", *(side.double() for side in pair(F32)))
case("nextafter", *pair(BF16))
for dtype in (I64, U8):
    case("gcd", *pair(dtype))
    case("lcm", *pair(dtype))

# --- one operand -------------------------------------------------------------

for dtype in (F32, BF16, I64, U8):
    for name in ("neg", "abs", "sign", "sgn", "ceil", "floor", "round", "trunc"):
        case(name, SPECIMENS[dtype])
for name in ("neg", "abs", "sgn"):
    case(name, COMPLEX)
case("sign", BOOLS)
case("frac", REALS)
case("frac", REALS.bfloat16())
for decimals in (2, 0, -2):
    case("round.decimals", REALS * 1.234567, decimals=decimals)

REAL_ONLY = {"exp2", "deg2rad", "rad2deg"}
UNIT = torch.linspace(-1, 1, 17)
for name in pointwise._FLOATS:
    case(name, REALS)
    case(name, REALS.bfloat16())
    case(name, UNIT)
    case(name, torch.tensor([1, 2, 9, 100]))
    case(name, torch.tensor([True, False]))
    if name not in REAL_ONLY:
        case(name, COMPLEX[:-1])
case("exp2", torch.arange(-20.0, 40.0))
case("log2", torch.cat((2.0 ** torch.arange(-30.0, 30.0), torch.linspace(0.9, 1.1, 41))))
case("log2", 2.0 ** torch.arange(-300, 300, 7, dtype=F64))
for dtype in (F32, F64, BF16, F16):
    case("frexp.Tensor", REALS.to(dtype))
case("frexp.Tensor", torch.tensor([1e-40, -3e-42, 5e-324], dtype=F64))

# --- complex numbers ---------------------------------------------------------

for name in ("conj_physical", "_conj_physical", "_conj", "_neg_view", "view_as_real", "angle"):
    case(name, COMPLEX)
for name in ("_conj_copy", "_neg_view_copy", "view_as_real_copy"):
    case(name, COMPLEX)
case("conj_physical", REALS)
case("view_as_complex", torch.randn(3, 2))
case("view_as_complex_copy", torch.randn(3, 2))
case("complex", REALS[:, None], REALS)
case("polar", torch.tensor([1.0, 2.0])[:, None], UNIT)
case("angle", REALS)
case("angle", INTS)

# --- comparisons -------------------------------------------------------------

for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    for dtype in (F32, BF16, I64, BOOL):
        case(f"{name}.Tensor", *pair(dtype))
    case(f"{name}.Tensor", INTS, torch.tensor(0.5))
    case(f"{name}.Scalar", REALS, 1)
    case(f"{name}.Scalar", REALS.bfloat16(), 1e-3)
    case(f"{name}.Scalar", INTS, 1.5)
case("eq.Tensor", *pair(C64))
case("ne.Scalar", COMPLEX, 0.3)
for dtype in (F32, I64, C64):
    x, y = pair(dtype)
    for name in ("logical_and", "logical_or", "logical_xor"):
        case(name, x, y)
    case("logical_not", x)
case("logical_and", REALS, INTS[:, None])

for dtype in (I64, U8, BOOL):
    x, y = pair(dtype)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        case(f"{name}.Tensor", x, y)
    case("bitwise_not", x)
for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    case(f"{name}.Scalar", INTS, 6)
    case(f"{name}.Scalar_Tensor", 6, INTS)
DISTANCES = torch.tensor([0, 1, 7, 31, 63, 64, 65, 1000, -1, -64])
for side in ("left", "right"):
    case(f"bitwise_{side}_shift.Tensor", INTS[:, None], DISTANCES)
    case(f"bitwise_{side}_shift.Tensor", INTS[:8, None].int(), DISTANCES.int())
    case(f"bitwise_{side}_shift.Tensor", BYTES[:, None], DISTANCES[:6].to(U8))
    case(f"bitwise_{side}_shift.Tensor_Scalar", INTS, 3)
    case(f"bitwise_{side}_shift.Scalar_Tensor", -1000, DISTANCES)
    case(f"__{side[0]}shift__.Tensor", INTS, torch.tensor(2))
    case(f"__{side[0]}shift__.Scalar", INTS, 5)

for dtype in (F32, BF16, I64, BOOL, C64):
    for name in ("isnan", "isinf"):
        case(name, SPECIMENS[dtype])
case("isinf", torch.tensor([complex(INF, 0), complex(0, -INF), complex(NAN, 0)]))
for dtype in (F32, BF16, I64, U8, BOOL):
    for name in ("isposinf", "isneginf", "signbit"):
        case(name, SPECIMENS[dtype])
case("heaviside", REALS, torch.tensor(7.0))
case("heaviside", INTS, torch.tensor(7))
case("nan_to_num", REALS)
case("nan_to_num", REALS, 1.0, 2.0, -3.0)
case("nan_to_num", REALS.bfloat16())
case("nan_to_num", REALS.half())
case("nan_to_num", REALS.double())
case("nan_to_num", INTS)
case("nan_to_num", torch.complex(REALS[:, None], REALS))

for name in ("maximum", "minimum", "fmax", "fmin"):
    for dtype in (F32, BF16, I64, BOOL):
        case(name, *pair(dtype))
case("clamp", REALS, -0.5, 2)
case("clamp", REALS, None, 2)
case("clamp", REALS, 3, -3)
case("clamp", REALS.bfloat16(), 0.1, 2)
case("clamp", INTS, -2, 5)
case("clamp", INTS, 0.5, None)
case("clamp.Tensor", REALS[:, None], REALS, None)
case("clamp.Tensor", REALS[:, None, None], REALS[:, None], REALS)
case("clamp.Tensor", INTS, None, torch.tensor(2.5))
case("clamp_min", REALS, 0.5)
case("clamp_max", INTS, 5)
case("clamp_min.Tensor", REALS[:, None], REALS)
case("clamp_max.Tensor", REALS[:, None], REALS)

case("where.self", BOOLS, torch.tensor(1.0), torch.tensor([1, 2, 3]))
case("where.self", BOOLS[:, None], REALS, torch.tensor(0, dtype=F64))
case("where.self", BOOLS, torch.tensor(1.5, dtype=F64), torch.tensor(2))
case("where.self", torch.tensor(True), COMPLEX, torch.tensor(2.0))
case("masked_fill.Scalar", REALS, REALS > 0, -INF)
case("masked_fill.Scalar", INTS, BOOLS[:, None], 3)
case("masked_fill.Tensor", REALS, REALS > 0, torch.tensor(2))
case("masked_fill.Scalar", BOOLS, BOOLS, False)


@pytest.mark.parametrize(("name", "args", "kwargs"), CASES)
def test_agrees_with_cpu(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    check(name, *args, **kwargs)


def test_product_with_a_mask_keeps_nan() -> None:
    case_of_inf = torch.tensor([INF, NAN, 1.0])
    check("mul.Tensor", case_of_inf, torch.tensor([False, False, True]))


# Operators with Scalar arguments, which may arrive as 0-d arrays once they have changed.
SCALARS: list[tuple[str, tuple[Any, ...]]] = [
    ("add.Scalar", (REALS, 0.5, 2.0)),
    ("add.Scalar", (INTS, 3, 2)),
    ("sub.Scalar", (REALS.bfloat16(), 0.1, 2)),
    ("rsub.Scalar", (REALS, 0.5, 3)),
    ("mul.Scalar", (REALS, 0.1)),
    ("div.Scalar", (REALS, 0.3)),
    ("floor_divide.Scalar", (REALS, 0.3)),
    ("remainder.Scalar", (INTS, 7)),
    ("fmod.Scalar", (REALS, 0.7)),
    ("lerp.Scalar", (REALS[:14], REALS[:14].flip(0), 0.7)),
    ("lerp.Scalar", (REALS[:14], REALS[:14].flip(0), 0.2)),
    ("pow.Scalar", (2.5, REALS)),
    ("eq.Scalar", (INTS, 7)),
    ("lt.Scalar", (REALS, 0.5)),
    ("bitwise_and.Scalar", (INTS, 6)),
    ("bitwise_left_shift.Tensor_Scalar", (INTS, 3)),
    ("clamp", (REALS, -0.5, 2.0)),
    ("clamp_min", (REALS, 0.5)),
    ("masked_fill.Scalar", (REALS, REALS > 0, 2.5)),
    ("fill.Scalar", (REALS, 2.5)),
    ("fill.Scalar", (INTS, 2.5)),
    ("arange.start_step", (1.0, 3.0, 0.5)),
    ("linspace", (1.0, 3.0, 5)),
    ("leaky_relu", (REALS, 0.2)),
    ("elu", (REALS, 1.5, 1.0, 0.5)),
    ("celu", (REALS, 1.5)),
    ("softplus", (REALS, 2.0, 5.0)),
    ("threshold", (REALS, 0.5, 7.0)),
    ("hardtanh", (REALS, -0.5, 0.5)),
    ("hardshrink", (REALS, 0.7)),
    ("softshrink", (REALS, 0.7)),
    ("xlogy.Scalar_Other", (REALS, 2.5)),
]


@pytest.mark.parametrize(("name", "args"), SCALARS)
def test_scalars_may_be_arrays(name: str, args: tuple[Any, ...]) -> None:
    wanted = find(name)(*args)
    steps = args[2] if name == "linspace" else None
    tensors = [a if isinstance(a, torch.Tensor) else torch.tensor(a) for a in args]
    dtypes = (
        [torch.result_type(tensors[0], a) for a in args] if tensors[0].dim() else [wanted.dtype]
    )
    result_type = str(max(dtypes, key=lambda dtype: dtype.is_floating_point))[6:]
    with jax.enable_x64(True):
        operands = [to_array(a) if isinstance(a, torch.Tensor) else jnp.asarray(a) for a in args]
        if steps is not None:
            operands[2] = steps
        spec = TensorSpec(str(wanted.dtype)[6:], tuple(wanted.shape))
        result = RULES[name](RuleContext((spec,), result_type), *operands).astype(spec.dtype)
        torch.testing.assert_close(to_tensor(result), wanted, equal_nan=True)


@pytest.mark.parametrize("name", ["exp2", "log2"])
def test_powers_of_two_are_exact(name: str) -> None:
    exponents = torch.arange(-60.0, 60.0)
    powers = torch.ldexp(torch.ones(120), exponents.int())
    given, wanted = (exponents, powers) if name == "exp2" else (powers, exponents)
    (result,), _ = run(name, given)
    assert torch.equal(result, wanted)


@pytest.mark.parametrize("name", ["neg", "ceil", "round", "trunc"])
def test_zero_keeps_its_sign(name: str) -> None:
    (result,), (wanted,) = run(name, torch.tensor([0.0, -0.0, -0.25]))
    assert torch.equal(result.signbit(), wanted.signbit())


ZEROS = torch.tensor([0.0, -0.0, 0.0, -0.0])
OTHER_ZEROS = torch.tensor([0.0, 0.0, -0.0, -0.0])
OF_ZEROS = [
    ("relu", (ZEROS,)),
    ("sign", (ZEROS,)),
    ("sgn", (ZEROS,)),
    ("hardtanh", (ZEROS, 0, 1)),
    ("hardtanh", (ZEROS, -1, -0.0)),
    ("clamp", (ZEROS, 0)),
    ("clamp", (ZEROS, -0.0, 0.0)),
    ("clamp", (ZEROS, None, -0.0)),
    ("clamp.Tensor", (ZEROS, OTHER_ZEROS)),
    ("clamp_min", (ZEROS, 0)),
    ("clamp_max", (ZEROS, -0.0)),
    ("clamp_min.Tensor", (ZEROS, OTHER_ZEROS)),
    ("clamp_max.Tensor", (ZEROS, OTHER_ZEROS)),
    ("maximum", (ZEROS, OTHER_ZEROS)),
    ("minimum", (ZEROS, OTHER_ZEROS)),
    ("fmax", (ZEROS, OTHER_ZEROS)),
    ("fmin", (ZEROS, OTHER_ZEROS)),
    ("sinh", (ZEROS,)),
]


@pytest.mark.parametrize("dtype", [F32, F64, torch.float16], ids=str)
@pytest.mark.parametrize(("name", "args"), OF_ZEROS)
def test_signs_of_zero(name: str, args: tuple[Any, ...], dtype: torch.dtype) -> None:
    given = [a.to(dtype) if isinstance(a, torch.Tensor) else a for a in args]
    (result,), (wanted,) = run(name, *given)
    assert result.tolist() == wanted.tolist()
    assert result.signbit().tolist() == wanted.signbit().tolist()


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_hyperbolic_functions_to_the_last_digits(name: str, dtype: torch.dtype) -> None:
    """Within five units in the last place, up to where the result itself overflows."""
    most = {F32: 89.4, F64: 710.4}[dtype]
    near = torch.linspace(-1.5, 1.5, 3001, dtype=dtype)
    far = torch.linspace(-most, most, 3001, dtype=dtype)
    x = torch.cat([near, far, torch.tensor([1e-30, INF, -INF, NAN], dtype=dtype)])
    (result,), _ = run(name, x)
    exact = getattr(np, name)(x.numpy().astype(np.longdouble)).astype(np.float64)
    wanted = torch.from_numpy(exact).to(dtype)
    tolerance = 5 * torch.finfo(dtype).eps
    torch.testing.assert_close(result, wanted, rtol=tolerance, atol=0, equal_nan=True)


def test_integer_to_negative_power_is_refused() -> None:
    context = RuleContext(out=(TensorSpec("int64", (1,)),), result_type="int64")
    with pytest.raises(Unsupported, match="negative power"):
        RULES["pow.Tensor_Scalar"](context, np.array([2]), -1)


@pytest.mark.parametrize("name", ("maximum", "minimum"))
def test_of_zeros_of_two_signs_the_first(name: str) -> None:
    zeros = torch.tensor([0.0, -0.0])
    for x, y in ((zeros, zeros.flip(0)), (zeros, zeros)):
        (found,), (expected,) = run(name, x, y)
        assert torch.equal(found.signbit(), expected.signbit())


def test_complex_logaddexp() -> None:
    for dtype in (torch.complex64, torch.complex128):
        x = COMPLEX.to(dtype)
        check("logaddexp", x, x.flip(0))
        check("logaddexp", x[:, None], 30 * x[None, :])


def test_every_rule_is_reached() -> None:
    assert unreached("pointwise", "arithmetic", "comparison") == set()
