"""The rules of special functions and activations agree with PyTorch's CPU."""

import math
from typing import Any

import pytest
import torch

from fuse.backends.xla.rules import bessel, polynomials, special
from tests.backends.rule_harness import check, run, unreached

F64, BF16, I64, C64 = torch.float64, torch.bfloat16, torch.int64, torch.complex64
NAN, INF = math.nan, math.inf

REALS = torch.tensor([0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, -2.5, 3.0, -3.0, 6.75, -6.75, 20.5])
EDGES = torch.cat((REALS, torch.tensor([1e-4, 30.0, -30.0, 90.0, -90.0, NAN, INF, -INF])))
POSITIVE = torch.tensor([0.05, 0.5, 1.0, 1.5, 2.0, 3.25, 7.5, 12.0, 40.0])
UNIT = torch.tensor([0.0, 1e-6, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 1.0])
COMPLEX = torch.tensor([1 + 2j, -0.5 + 0.25j, 0.75 - 1.5j, 0j])
GRAD = torch.linspace(-2, 2, len(EDGES))

CASES: list[Any] = []


def case(name: str, *args: Any, **kwargs: Any) -> None:
    label = "-".join(str(a.dtype)[6:] if isinstance(a, torch.Tensor) else str(a) for a in args)
    CASES.append(pytest.param(name, args, kwargs, id=f"{name}-{label}-{len(CASES)}"))


# --- special functions -------------------------------------------------------

HALF = {"special_entr", "special_i0e", "special_i1", "special_i1e"}  # with a CPU kernel
for name in special._ONE:
    case(name, EDGES)
    case(name, EDGES.double())
    if not name.startswith("special_") or name in HALF:
        case(name, REALS.bfloat16())
    case(name, torch.tensor([1, 2, 3]))
    case(name, torch.tensor([True, False]))
    case(name, UNIT)
    case(name, UNIT.double())
case("special_erfcx", torch.linspace(-3, 60, 200, dtype=F64))
case("special_log_ndtr", torch.linspace(-60, 10, 200, dtype=F64))
for order in range(4):
    case("polygamma", order, POSITIVE)
    case("polygamma", order, POSITIVE.double())
case("polygamma", 1, torch.tensor([-0.5, -1.25, -7.75, 0.0, NAN, INF]))
case("polygamma", 2, torch.linspace(-9.7, 0.3, 41))
case("polygamma", 3, torch.linspace(-9.7, 0.3, 41, dtype=F64))
case("mvlgamma", POSITIVE + 2, 3)
for name in ("igamma", "igammac"):
    case(name, POSITIVE[:, None], POSITIVE)
    case(name, POSITIVE[:, None].double(), POSITIVE.double())
case("special_zeta", torch.tensor([[0.5], [1.0], [1.5], [2.0], [3.0], [8.0]]), EDGES[:-3])
case("special_zeta.other_scalar", POSITIVE, 2.5)
case("special_zeta.self_scalar", 3, POSITIVE.double())
for name in ("xlogy.Tensor", "special_xlog1py"):
    case(name, EDGES[:, None], EDGES)
    case(name, torch.tensor([0, 1, 2])[:, None], torch.tensor([0, 1, 5]))
    case(name, REALS.bfloat16(), REALS.bfloat16().abs())
for name in ("xlogy.Scalar_Other", "special_xlog1py.other_scalar"):
    case(name, EDGES, 2.5)
for name in ("xlogy.Scalar_Self", "special_xlog1py.self_scalar"):
    case(name, 0, EDGES)
for eps in (None, 0.2, 1e-6):
    case("logit", torch.cat((UNIT, torch.tensor([-0.5, 1.5, NAN]))), eps)
    case("logit_backward", GRAD[:12], torch.cat((UNIT, torch.tensor([-0.5, 1.5, NAN]))), eps)
case("logit", UNIT.bfloat16(), 0.1)

# --- Bessel and Airy functions -----------------------------------------------

TENTHS = torch.linspace(-12, 120, 661, dtype=F64)  # over the borders of every approximation
WILD = torch.tensor([0.0, -0.0, 1e-30, 1e-7, 1e-3, -1e-3, 104.0, -104.0, 1e4, NAN, INF, -INF])
for name in bessel._FUNCTIONS:
    case(name, TENTHS)
    case(name, TENTHS[::5].float())
    case(name, WILD)
    case(name, WILD.double())
    case(name, torch.tensor([0, 1, 7, -3]))
    case(name, torch.tensor([True, False]))

# --- orthogonal polynomials --------------------------------------------------

DEGREES = torch.arange(-1.0, 9.0)
# No NaN: PyTorch returns memory it never wrote for it, where ours is NaN.
POINTS = torch.tensor([-2.5, -1.0, -0.75, 0.0, 0.3, 1.0, 1.5])
for family in polynomials._FAMILIES:
    for name in (family, f"shifted_{family}")[: 2 if "chebyshev" in family else 1]:
        case(f"special_{name}", POINTS[:, None], DEGREES)
        case(f"special_{name}", POINTS[:, None].double(), DEGREES)
        case(f"special_{name}.x_scalar", 0.4, DEGREES)
        case(f"special_{name}.n_scalar", POINTS, 5)
case("special_chebyshev_polynomial_t", torch.tensor([1, 2, 3]), torch.tensor([0, 2, 4]))

# --- activations of one operand ----------------------------------------------

PARAMETERS: dict[str, list[tuple[Any, ...]]] = {
    "relu": [()],
    "leaky_relu": [(0.01,), (0.3,), (-0.5,)],
    "threshold": [(0.5, -7.0), (-1, 2)],
    "hardtanh": [(-1, 1), (-0.25, 2.5)],
    "hardshrink": [(0.5,), (1.0,)],
    "softshrink": [(0.5,), (1.0,)],
    "elu": [(1, 1, 1), (1.5, 1.25, 0.5)],
    "celu": [(1.0,), (0.7,)],
    "softplus": [(1, 20), (2.0, 5.0)],
    "silu": [()],
    "mish": [()],
    "hardswish": [()],
    "hardsigmoid": [()],
    "log_sigmoid_forward": [()],
}
for name, parameters in PARAMETERS.items():
    for values in parameters:
        case(name, EDGES, *values)
        case(name, EDGES.bfloat16(), *values)
for approximate in ("none", "tanh"):
    case("gelu", EDGES[:-2], approximate=approximate)
    case("gelu", REALS.bfloat16(), approximate=approximate)
    case("gelu_backward", GRAD, EDGES, approximate=approximate)
    case("gelu_backward", GRAD.double(), EDGES.double(), approximate=approximate)
case("relu", torch.tensor([-2, 0, 3]))
case("threshold", torch.tensor([-2, 0, 3]), 1, 7)
case("hardtanh", torch.tensor([-2, 0, 3]), -1, 2)
case("silu", COMPLEX)

# --- gradients ---------------------------------------------------------------

GRADIENTS: dict[str, list[tuple[Any, ...]]] = {
    "leaky_relu_backward": [(0.01, False), (0.3, True)],
    "threshold_backward": [(0,), (0.5,)],
    "hardtanh_backward": [(-1, 1), (-0.25, 2.5)],
    "hardshrink_backward": [(0.5,), (1.0,)],
    "softshrink_backward": [(0.5,), (1.0,)],
    "softplus_backward": [(1, 20), (2.0, 5.0)],
    "silu_backward": [()],
    "mish_backward": [()],
    "hardswish_backward": [()],
    "hardsigmoid_backward": [()],
    "sigmoid_backward": [()],
    "tanh_backward": [()],
}
for name, parameters in GRADIENTS.items():
    for values in parameters:
        # An infinite input makes 0 * inf in some of PyTorch's formulas, not in others.
        case(name, GRAD[:-2], EDGES[:-2], *values)
        case(name, GRAD[:13].bfloat16(), REALS.bfloat16(), *values)
for is_result in (False, True):
    case("elu_backward", GRAD[:13], 1.5, 1.25, 0.5, is_result, REALS)
    case("elu_backward", GRAD[:13].bfloat16(), 1, 1, 1, is_result, REALS.bfloat16())
for name in ("sigmoid_backward", "tanh_backward"):
    case(name, COMPLEX, COMPLEX.flip(0))
case("log_sigmoid_backward", GRAD[:13], REALS, torch.exp(-REALS.abs()))
case(
    "log_sigmoid_backward",
    GRAD[:13].bfloat16(),
    REALS.bfloat16(),
    torch.exp(-REALS.abs()).bfloat16(),
)

X = torch.linspace(-3, 3, 24).reshape(2, 4, 3)
case("_prelu_kernel", X, torch.linspace(-1, 1, 4).reshape(1, 4, 1))
case("_prelu_kernel_backward", X.flip(0), X, torch.linspace(-1, 1, 4).reshape(1, 4, 1))
for training in (False, True):
    case("rrelu_with_noise_backward", X.flip(0), X, X.abs() / 9, 0.125, 0.5, training, False)
case("rrelu_with_noise_backward", X.flip(0), X, X.abs() / 9, 0.25, 0.25, True, False)
for dim in (1, -2):
    case("glu", X, dim)
    case("glu_backward", X[:, :2], X, dim)
    case("glu_jvp", torch.nn.functional.glu(X, dim), X, X.flip(0), dim)
case("glu", X[:, :, :2].bfloat16())
case("native_dropout_backward", X, X > 0, 2.0)
case("native_dropout_backward", X.bfloat16(), X > 0, 1.25)


@pytest.mark.parametrize(("name", "args", "kwargs"), CASES)
def test_agrees_with_cpu(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    check(name, *args, **kwargs)


@pytest.mark.parametrize("name", ["special_erfcx", "special_log_ndtr", "special_ndtri", "erfinv"])
def test_double_precision_is_kept(name: str) -> None:
    low, high = {"special_ndtri": (1e-9, 1 - 1e-9), "erfinv": (-0.999, 0.999)}.get(name, (-20, 50))
    (result,), (wanted,) = run(name, torch.linspace(low, high, 400, dtype=F64))
    torch.testing.assert_close(result, wanted, rtol=1e-12, atol=1e-14)


def test_every_rule_is_reached() -> None:
    assert unreached("special", "polynomials", "activation", "bessel") == set()
