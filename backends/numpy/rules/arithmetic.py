"""NumPy rules of arithmetic on two or more operands: sums, products, quotients, powers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fuse.backends.numpy.rules.context import RuleContext, convert
from fuse.backends.numpy.rules.elementwise import floats, is_complex, is_float, is_integer, like
from fuse.backends.numpy.rules.registry import Rule, Scalar, Value, rule

Function = Callable[..., np.ndarray]


# --- sums and products -------------------------------------------------------
# NumPy's sum of booleans is their disjunction and the product their conjunction, as in PyTorch.


@rule("add.Tensor", "add.Scalar")
def _add(ctx: RuleContext, self: Value, other: Value, alpha: Scalar = 1) -> np.ndarray:
    x, y = ctx.computed(self, other)
    return np.add(x, like(y, alpha) * y)


@rule("sub.Tensor", "sub.Scalar")
def _sub(ctx: RuleContext, self: Value, other: Value, alpha: Scalar = 1) -> np.ndarray:
    x, y = ctx.computed(self, other)
    return np.subtract(x, like(y, alpha) * y)


@rule("rsub.Tensor", "rsub.Scalar")
def _rsub(ctx: RuleContext, self: Value, other: Value, alpha: Scalar = 1) -> np.ndarray:
    return _sub(ctx, other, self, alpha)


@rule("mul.Tensor", "mul.Scalar")
def _mul(ctx: RuleContext, self: Value, other: Value) -> np.ndarray:
    return np.multiply(*ctx.computed(self, other))


@rule("addcmul")
def _addcmul(ctx: RuleContext, self: Value, x: Value, y: Value, value: Scalar = 1) -> np.ndarray:
    if "int" in ctx.out[0].dtype:  # of a value that is no integer, its whole part counts
        self, x, y = (convert(operand, ctx.out[0].dtype) for operand in (self, x, y))
    else:
        self, x, y = ctx.computed(self, x, y)
    return np.add(self, like(x, value) * x * y)


@rule("addcdiv")
def _addcdiv(ctx: RuleContext, self: Value, x: Value, y: Value, value: Scalar = 1) -> np.ndarray:
    self, x, y = floats(ctx, self, x, y)
    return np.add(self, like(x, value) * x / y)


def _integers(ctx: RuleContext, *_: object) -> str | None:
    return "interpolation between integers" if "int" in ctx.out[0].dtype else None


@rule("lerp.Scalar", "lerp.Tensor", refuse=_integers)
def _lerp(ctx: RuleContext, self: Value, end: Value, weight: Value) -> np.ndarray:
    # Interpolates from the nearer end, so that weight 1 gives ``end`` exactly
    # (aten/src/ATen/native/Lerp.h).
    start, end, w = ctx.computed(self, end, weight)
    span = end - start
    return np.where(np.abs(w) < 0.5, start + w * span, end - span * (1 - w))


# --- division ----------------------------------------------------------------


def floor_divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Quotient rounded to minus infinity.

    PyTorch raises on an integer division by zero while the call runs; a recorded one cannot,
    and gives 0.
    """
    return np.floor_divide(x, y)


def truncated_quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Quotient rounded to zero."""
    if is_float(x):
        return np.trunc(x / y)
    floor = np.floor_divide(x, y)
    inexact = floor * y != x
    return floor + (inexact & ((x < 0) != (y < 0))).astype(x.dtype)


def remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Rest of ``floor_divide``: takes the divisor's sign."""
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((y < 0) != (rest < 0)), rest + y, rest)


@rule("div.Tensor", "div.Scalar")
def _div(ctx: RuleContext, self: Value, other: Value) -> np.ndarray:
    return np.divide(*floats(ctx, self, other))


@rule("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(
    ctx: RuleContext, self: Value, other: Value, rounding_mode: str | None = None
) -> np.ndarray:
    if rounding_mode is None:
        return _div(ctx, self, other)
    x, y = ctx.computed(self, other)
    return floor_divide(x, y) if rounding_mode == "floor" else truncated_quotient(x, y)


# --- powers ------------------------------------------------------------------


def _integer_power(x: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """A power that wraps around; a negative exponent rounds ``1 / x**n`` to zero."""
    result = np.power(x, np.maximum(exponent, 0))
    odd = exponent % 2 != 0
    inverse = np.where(x == 1, 1, np.where(x == like(x, -1), np.where(odd, like(x, -1), 1), 0))
    return np.where(exponent < 0, inverse, result).astype(x.dtype)


def power(x: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """``x ** exponent`` of two operands of one dtype."""
    if x.dtype == np.bool_:
        return x | ~exponent  # 0 ** 0 is 1
    if is_integer(x):
        return _integer_power(x, exponent)
    result = np.power(x, exponent)
    if is_complex(x):  # 0 to a power with a positive real part is 0
        result = np.where((x == 0) & (exponent.real > 0), 0, result)
    return result


_SPECIAL_POWERS: dict[complex, Callable[[np.ndarray], np.ndarray]] = {
    0.5: np.sqrt,  # of -0.0 and -inf what sqrt gives, not C's pow: so does PyTorch
    -0.5: lambda x: 1 / np.sqrt(x),
    -1: lambda x: 1 / x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    -2: lambda x: 1 / (x * x),
}


@rule("pow.Tensor_Scalar")
def _pow_scalar(ctx: RuleContext, self: np.ndarray, exponent: complex) -> np.ndarray:
    (x,) = ctx.computed(self)
    if exponent in _SPECIAL_POWERS and not is_integer(x) and x.dtype != np.bool_:
        return _SPECIAL_POWERS[exponent](x)
    return power(x, like(x, exponent))


@rule("pow.Tensor_Tensor", "pow.Scalar")
def _pow(ctx: RuleContext, self: Value, exponent: Value) -> np.ndarray:
    return power(*ctx.computed(self, exponent))


# --- two operands ------------------------------------------------------------


def logaddexp(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``log(exp(x) + exp(y))``; equal infinities give themselves."""
    if not is_complex(x):
        return np.logaddexp(x, y)
    # Complex numbers as in PyTorch's LogAddExp.h: the one with the larger real part leads.
    swapped = x.real < y.real
    large, small = np.where(swapped, y, x), np.where(swapped, x, y)
    total = large + np.log1p(np.exp(small - large))
    infinite = np.isinf(large.real) & (large.real == small.real)
    plain = np.where(large.real < 0, small, np.log(np.exp(small) + np.exp(large)))
    result = np.where(infinite, plain, total)
    return np.where((x != x) | (y != y), complex(math.nan, math.nan), result)


def lcm(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least common multiple, never negative; 0 where an operand is 0."""
    divisor = np.gcd(x, y)
    return np.abs(x // np.where(divisor == 0, 1, divisor) * y)


def _promoted(ctx: RuleContext, *values: Value) -> tuple[np.ndarray, ...]:
    return ctx.promoted(*values)


def _computed(ctx: RuleContext, *values: Value) -> tuple[np.ndarray, ...]:
    return ctx.computed(*values)


def _of_two(function: Function, operands: Callable[..., tuple[np.ndarray, ...]]) -> Rule:
    def define(ctx: RuleContext, self: Value, other: Value) -> np.ndarray:
        return function(*operands(ctx, self, other))

    return define


for _names, _function, _operands in (
    (("floor_divide", "floor_divide.Scalar"), floor_divide, _computed),
    (("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor"), remainder, _computed),
    (("fmod.Tensor", "fmod.Scalar"), np.fmod, _computed),
    (("atan2",), np.arctan2, floats),
    (("hypot",), np.hypot, _computed),
    (("copysign.Tensor", "copysign.Scalar"), np.copysign, floats),
    (("ldexp.Tensor",), lambda x, y: x * np.exp2(y), floats),
    (("logaddexp",), logaddexp, floats),
    (("logaddexp2",), np.logaddexp2, floats),
    (("nextafter",), np.nextafter, _promoted),  # never widened: a step of the narrow dtype
    (("gcd",), np.gcd, _promoted),
    (("lcm",), lcm, _promoted),
):
    rule(*_names)(_of_two(_function, _operands))
