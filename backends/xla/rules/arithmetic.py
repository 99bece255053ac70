"""XLA rules of arithmetic on two or more operands: sums, products, quotients, powers."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.backends.xla.rules.context import RuleContext
from fuse.backends.xla.rules.elementwise import (
    REAL_OF,
    Value,
    cast,
    computed,
    divided,
    dtype_of,
    exact,
    expand,
    floats,
    is_complex,
    is_float,
    is_integer,
    is_negative,
    is_number,
    like,
    select,
    spread,
)
from fuse.backends.xla.rules.registry import Rule, Unsupported, of_integers, rule

Function = Callable[..., Value]


# --- sums and products -------------------------------------------------------


def add(x: Value, y: Value) -> Value:
    """Sum; of booleans it is their disjunction, as in PyTorch."""
    return lax.bitwise_or(x, y) if dtype_of(x) == "bool" else lax.add(x, y)


def multiply(x: Value, y: Value) -> Value:
    """Product; of booleans it is their conjunction."""
    return lax.bitwise_and(x, y) if dtype_of(x) == "bool" else lax.mul(x, y)


def scaled(x: Value, alpha: Value) -> Value:
    """``alpha * x``, without the product where alpha is known to be one."""
    return x if is_number(alpha) and alpha == 1 else multiply(x, like(x, alpha))


@rule("add.Tensor", "add.Scalar")
def _add(ctx: RuleContext, self: Value, other: Value, alpha: Value = 1) -> Value:
    x, y = computed(ctx, self, other)
    return add(x, scaled(y, alpha))


@rule("sub.Tensor", "sub.Scalar")
def _sub(ctx: RuleContext, self: Value, other: Value, alpha: Value = 1) -> Value:
    x, y = computed(ctx, self, other)
    return lax.sub(x, scaled(y, alpha))


@rule("rsub.Tensor", "rsub.Scalar")
def _rsub(ctx: RuleContext, self: Value, other: Value, alpha: Value = 1) -> Value:
    x, y = computed(ctx, self, other)
    return lax.sub(y, scaled(x, alpha))


@rule("mul.Tensor", "mul.Scalar")
def _mul(ctx: RuleContext, self: Value, other: Value) -> Value:
    return multiply(*computed(ctx, self, other))


@rule("addcmul", may_refuse=of_integers)
def _addcmul(ctx: RuleContext, self: Value, x: Value, y: Value, value: Value = 1) -> Value:
    if is_integer(ctx.out[0].dtype):  # of a value that is no integer, its whole part counts
        self, x, y = spread(*(cast(operand, ctx.out[0].dtype) for operand in (self, x, y)))
    else:
        self, x, y = computed(ctx, self, x, y)
    return add(self, multiply(scaled(x, value), y))


@rule("addcdiv")
def _addcdiv(ctx: RuleContext, self: Value, x: Value, y: Value, value: Value = 1) -> Value:
    self, x, y = floats(ctx, self, x, y)
    return lax.add(self, divided(ctx, scaled(x, value), y))


@rule("lerp.Scalar", "lerp.Tensor", may_refuse=of_integers)
def _lerp(ctx: RuleContext, self: Value, end: Value, weight: Value) -> Value:
    if is_integer(ctx.out[0].dtype):
        raise Unsupported("interpolation between integers")  # the CPU refuses it in its own words
    # Interpolates from the nearer end, so that weight 1 gives ``end`` exactly
    # (aten/src/ATen/native/Lerp.h).
    start, end, w = computed(ctx, self, end, weight)
    span = lax.sub(end, start)
    near = lax.add(start, lax.mul(w, span))
    far = lax.sub(end, lax.mul(span, lax.sub(like(w, 1), w)))
    if is_number(weight):
        return near if abs(weight) < 0.5 else far
    size = lax.abs(w)
    return select(lax.lt(size, like(size, 0.5)), near, far)


# --- division ----------------------------------------------------------------


def floor_divide(x: Value, y: Value) -> Value:
    """Quotient rounded to minus infinity, for floats with ``c10::div_floor_floating``'s corners.

    PyTorch raises on an integer division by zero while the call runs; a recorded one
    cannot, and gives what XLA defines (all bits set).
    """
    if not is_float(dtype_of(x)):
        quotient = lax.div(x, y)
        if dtype_of(x).startswith("u"):
            return quotient
        rest = lax.rem(x, y)
        inexact = lax.bitwise_and(lax.ne(rest, like(x, 0)), lax.ne(lax.sign(rest), lax.sign(y)))
        return lax.sub(quotient, cast(inexact, dtype_of(x)))
    zero = like(x, 0)
    ratio, rest = lax.div(x, y), lax.rem(x, y)
    quotient = lax.div(lax.sub(x, rest), y)
    apart = lax.ne(lax.lt(y, zero), lax.lt(rest, zero))
    below = lax.bitwise_and(lax.ne(rest, zero), apart)
    quotient = lax.sub(quotient, cast(below, dtype_of(x)))
    floor = lax.floor(quotient)
    short = lax.gt(lax.sub(quotient, floor), like(x, 0.5))
    floor = lax.add(floor, cast(short, dtype_of(x)))
    floor = select(lax.eq(quotient, zero), lax.mul(zero, ratio), floor)  # keeps the zero's sign
    return select(lax.eq(y, zero), ratio, floor)


def truncate(x: Value) -> Value:
    """Round to zero; keeps the sign of a zero."""
    if not is_float(dtype_of(x)):
        return x
    return select(lax.lt(x, like(x, 0)), lax.ceil(x), lax.floor(x))


def truncated_quotient(x: Value, y: Value) -> Value:
    """Quotient of two operands rounded to zero.

    XLA turns a division by a broadcast into a product with the reciprocal, one unit in
    the last place off: ``49 / 49`` may become 0.99999994 and truncate to 0. float32 is
    therefore divided in float64; a float64 quotient within two units of an integer is
    taken for that integer.
    """
    dtype = dtype_of(x)
    if not is_float(dtype):
        return lax.div(x, y)
    if dtype == "float32":
        return truncate(cast(lax.div(cast(x, "float64"), cast(y, "float64")), dtype))
    quotient = lax.div(x, y)
    whole = lax.round(quotient, lax.RoundingMethod.TO_NEAREST_EVEN)
    slack = lax.mul(lax.abs(quotient), like(x, 2.0**-51))
    near = lax.le(lax.abs(lax.sub(quotient, whole)), slack)
    return select(near, whole, truncate(quotient))


def remainder(x: Value, y: Value) -> Value:
    """Rest of ``floor_divide``: takes the divisor's sign."""
    rest = lax.rem(x, y)
    if dtype_of(x).startswith("u"):
        return rest
    zero = like(x, 0)
    apart = lax.ne(lax.lt(y, zero), lax.lt(rest, zero))
    return select(lax.bitwise_and(lax.ne(rest, zero), apart), lax.add(rest, y), rest)


@rule("div.Tensor", "div.Scalar")
def _div(ctx: RuleContext, self: Value, other: Value) -> Value:
    return divided(ctx, *floats(ctx, self, other))


@rule("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(
    ctx: RuleContext, self: Value, other: Value, rounding_mode: str | None = None
) -> Value:
    if rounding_mode is None:
        return _div(ctx, self, other)
    x, y = computed(ctx, self, other)
    return floor_divide(x, y) if rounding_mode == "floor" else truncated_quotient(x, y)


def _of_two(function: Function, operands: Function) -> Rule:
    def emit(ctx: RuleContext, self: Value, other: Value) -> Value:
        return function(*operands(ctx, self, other))

    return emit


# --- powers ------------------------------------------------------------------


def _integer_power(x: Value, exponent: Value) -> Value:
    """Repeated squaring that wraps around; a negative exponent rounds ``1 / x**n`` to zero."""
    x, exponent = (
        expand(v, np.broadcast_shapes(np.shape(x), np.shape(exponent))) for v in (x, exponent)
    )
    one, zero = like(x, 1), like(x, 0)

    def step(state: tuple[Value, Value, Value]) -> tuple[Value, Value, Value]:
        result, base, left = state
        odd = lax.ne(lax.bitwise_and(left, one), zero)
        result = select(odd, lax.mul(result, base), result)
        return result, lax.mul(base, base), lax.shift_right_logical(left, one)

    start = (lax.full_like(x, 1), x, lax.max(exponent, zero))
    result = lax.while_loop(lambda state: lax.reduce_max(state[2], range(x.ndim)) > 0, step, start)[
        0
    ]
    if dtype_of(x).startswith("u"):
        return result
    odd = lax.ne(lax.bitwise_and(exponent, one), zero)
    minus_one = select(odd, like(x, -1), lax.full_like(x, 1))
    inverse = select(lax.eq(x, like(x, -1)), minus_one, cast(lax.eq(x, one), dtype_of(x)))
    return select(lax.lt(exponent, zero), inverse, result)


def power(x: Value, exponent: Value) -> Value:
    """``x ** exponent`` of two operands of one dtype."""
    dtype = dtype_of(x)
    if dtype == "bool":
        return lax.bitwise_or(x, lax.bitwise_not(exponent))  # 0 ** 0 is 1
    if is_integer(dtype):
        return _integer_power(x, exponent)
    result = lax.pow(x, exponent)
    if is_complex(dtype):  # 0 to a power with a positive real part is 0; XLA has NaN
        positive = lax.gt(lax.real(exponent), cast(0, REAL_OF[dtype]))
        result = select(lax.bitwise_and(lax.eq(x, like(x, 0)), positive), like(x, 0), result)
    return result


_ROOTS: dict[complex, Function] = {
    0.5: lax.sqrt,  # of -0.0 and -inf what sqrt gives, not C's pow: so does PyTorch
    -0.5: lax.rsqrt,
}


def _real_if_possible(number: complex) -> complex:
    return number.real if isinstance(number, complex) and number.imag == 0 else number


def _pow_varying(x: Value, exponent: Value) -> Value:
    """``x ** exponent`` of an exponent that varies: the roots stay what they are as constants."""
    result = power(x, expand(like(x, exponent), x.shape))
    if is_integer(dtype_of(x)) or is_integer(dtype_of(exponent)):
        return result
    for known, root in _ROOTS.items():
        result = select(lax.eq(exponent, cast(known, dtype_of(exponent))), root(x), result)
    return result


@rule("pow.Tensor_Scalar", may_refuse=of_integers)
def _pow_scalar(ctx: RuleContext, self: Value, exponent: Value) -> Value:
    (x,) = computed(ctx, self)
    if not is_number(exponent):
        return _pow_varying(x, exponent)
    exponent = _real_if_possible(exponent)
    if exponent in _ROOTS and not is_integer(dtype_of(x)):
        return _ROOTS[exponent](x)
    if dtype_of(x) == "bool" or exponent.imag or not float(exponent.real).is_integer():
        return power(x, expand(like(x, exponent), x.shape))
    whole = int(exponent.real)
    if is_integer(dtype_of(x)) and whole < 0:
        raise Unsupported("an integer to a negative power")
    if is_integer(dtype_of(x)) or abs(whole) <= 4:
        return lax.integer_pow(x, whole)
    return lax.pow(x, like(x, whole))


@rule("pow.Tensor_Tensor", "pow.Scalar")
def _pow(ctx: RuleContext, self: Value, exponent: Value) -> Value:
    return power(*computed(ctx, self, exponent))


# --- two operands ------------------------------------------------------------


def hypot(x: Value, y: Value) -> Value:
    """``sqrt(x*x + y*y)`` that neither overflows nor lets NaN hide an infinity."""
    x, y = lax.abs(x), lax.abs(y)
    large, small = lax.max(x, y), lax.min(x, y)
    ratio = lax.div(small, select(lax.eq(large, like(x, 0)), like(x, 1), large))
    size = lax.mul(large, lax.sqrt(lax.add(lax.mul(ratio, ratio), like(x, 1))))
    infinite = lax.bitwise_or(lax.eq(x, like(x, math.inf)), lax.eq(y, like(x, math.inf)))
    return select(infinite, like(x, math.inf), size)


def copysign(x: Value, y: Value) -> Value:
    """The size of ``x`` with the sign bit of ``y``."""
    x, y = (expand(v, np.broadcast_shapes(np.shape(x), np.shape(y))) for v in (x, y))
    size = lax.abs(x)
    return select(is_negative(y), lax.neg(size), size)


def _log_add(x: Value, y: Value, log1p: Function, power_of_base: Function) -> Value:
    peak = lax.max(x, y)
    total = lax.add(peak, log1p(power_of_base(lax.neg(lax.abs(lax.sub(x, y))))))
    same = lax.bitwise_and(lax.eq(x, y), lax.eq(lax.abs(x), like(x, math.inf)))
    return select(same, x, total)


def exp2(x: Value) -> Value:
    """``2 ** x``, exact at integers, which XLA's own exp2 is not."""
    return lax.pow(like(x, 2), x)


def logaddexp(x: Value, y: Value) -> Value:
    """``log(exp(x) + exp(y))``; equal infinities give themselves."""
    if is_complex(dtype_of(x)):
        return complex_logaddexp(x, y)
    return _log_add(x, y, lax.log1p, lax.exp)


def complex_logaddexp(x: Value, y: Value) -> Value:
    """``log(exp(x) + exp(y))``, ordered by real parts (ATen/native/cpu/LogAddExp.h)."""
    x, y = jnp.broadcast_arrays(x, y)
    swapped = lax.lt(lax.real(y), lax.real(x))
    low, high = lax.select(swapped, y, x), lax.select(swapped, x, y)
    usual = lax.add(lax.log1p(lax.exp(lax.sub(low, high))), high)
    direct = lax.log(lax.add(lax.exp(low), lax.exp(high)))
    bottom = lax.real(low)
    infinite = lax.bitwise_and(lax.eq(bottom, lax.real(high)), lax.abs(bottom) == math.inf)
    at_infinity = lax.select(lax.lt(bottom, lax.full_like(bottom, 0)), low, direct)
    result = lax.select(infinite, at_infinity, usual)
    undefined = lax.bitwise_or(jnp.isnan(x), jnp.isnan(y))
    return lax.select(undefined, lax.full_like(result, complex(math.nan, math.nan)), result)


def logaddexp2(x: Value, y: Value) -> Value:
    """``log2(2**x + 2**y)``."""
    scale = like(x, 1 / math.log(2))
    return _log_add(x, y, lambda v: lax.mul(lax.log1p(v), scale), exp2)


def gcd(x: Value, y: Value) -> Value:
    """Greatest common divisor, never negative, by Euclid's algorithm."""
    shape = np.broadcast_shapes(np.shape(x), np.shape(y))
    zero = like(x, 0)

    def step(state: tuple[Value, Value]) -> tuple[Value, Value]:
        a, b = state
        done = lax.eq(b, zero)
        rest = lax.rem(a, select(done, like(b, 1), b))
        return select(done, a, b), select(done, zero, rest)

    size = lax.abs if not dtype_of(x).startswith("u") else lambda v: v
    start = (expand(size(x), shape), expand(size(y), shape))
    return lax.while_loop(lambda state: jnp.any(state[1] != 0), step, start)[0]


def lcm(x: Value, y: Value) -> Value:
    """Least common multiple, never negative; 0 where an operand is 0."""
    divisor = gcd(x, y)
    quotient = lax.div(x, select(lax.eq(divisor, like(x, 0)), like(x, 1), divisor))
    product = lax.mul(quotient, y)
    return product if dtype_of(x).startswith("u") else lax.abs(product)


def _nextafter(ctx: RuleContext, self: Value, other: Value) -> Value:
    x, y = exact(ctx, self, other)  # never widened: the step is one of the narrow dtype
    if ctx.platform.name == "tpu" and dtype_of(x) == "float64":
        raise Unsupported("a TPU's float64 is two of float32: its next number is another")
    return lax.nextafter(x, y)


rule("nextafter")(_nextafter)

for _names, _function, _operands in (
    (("floor_divide", "floor_divide.Scalar"), floor_divide, computed),
    (("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor"), remainder, computed),
    (("fmod.Tensor", "fmod.Scalar"), lax.rem, computed),
    (("atan2",), lax.atan2, floats),
    (("hypot",), hypot, computed),
    (("copysign.Tensor", "copysign.Scalar"), copysign, floats),
    (("ldexp.Tensor",), lambda x, y: lax.mul(x, exp2(y)), floats),
    (("logaddexp",), logaddexp, floats),
    (("logaddexp2",), logaddexp2, floats),
    (("gcd",), gcd, exact),
    (("lcm",), lcm, exact),
):
    rule(*_names)(_of_two(_function, _operands))
