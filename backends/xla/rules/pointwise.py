"""XLA rules of one operand: signs, rounding, elementary functions, complex numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.backends.xla.rules.arithmetic import copysign, exp2, truncate
from fuse.backends.xla.rules.context import RuleContext
from fuse.backends.xla.rules.elementwise import (
    Value,
    bits_of,
    cast,
    computed,
    divided,
    dtype_of,
    expand,
    float_dtype,
    is_complex,
    is_float,
    is_number,
    like,
    select,
    widened,
)
from fuse.backends.xla.rules.registry import Rule, rule

Function = Callable[..., Value]


# --- one operand, same dtype -------------------------------------------------


def _round_half_even(x: Value) -> Value:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def sign(x: Value) -> Value:
    """-1, 0 or 1; of NaN it is 0, as on PyTorch's CPU; of a complex number its direction."""
    dtype = dtype_of(x)
    if dtype == "bool":
        return x
    if is_float(dtype):  # of a negative zero, too
        return select(lax.bitwise_or(lax.ne(x, x), lax.eq(x, like(x, 0))), like(x, 0), lax.sign(x))
    return lax.sign(x)


def _absolute(x: Value) -> Value:
    return x if dtype_of(x) == "bool" or dtype_of(x).startswith("u") else lax.abs(x)


def _identity_of_integers(function: Function) -> Function:
    return lambda x: function(x) if is_float(dtype_of(x)) else x


def _of_self(function: Function) -> Rule:
    def emit(ctx: RuleContext, self: Value) -> Value:
        return function(self)

    return emit


_SAME_DTYPE: dict[str, Function] = {
    "neg": lax.neg,
    "abs": _absolute,
    "sign": sign,
    "sgn": sign,
    "ceil": _identity_of_integers(lax.ceil),
    "floor": _identity_of_integers(lax.floor),
    "round": _identity_of_integers(_round_half_even),
    "trunc": truncate,
    "frac": lambda x: lax.sub(x, truncate(x)),
}
for _name, _function in _SAME_DTYPE.items():
    rule(_name)(_of_self(_function))


@rule("round.decimals")
def _round_decimals(ctx: RuleContext, self: Value, decimals: Value) -> Value:
    x = widened(self)
    if not is_float(dtype_of(x)):
        return x
    if not is_number(decimals):
        factor = like(x, lax.pow(np.float64(10), cast(lax.abs(decimals), "float64")))
        up, down = lax.mul(x, factor), divided(ctx, x, factor)
        rounded = _round_half_even(select(lax.lt(decimals, np.int64(0)), down, up))
        return select(
            lax.lt(decimals, np.int64(0)), lax.mul(rounded, factor), divided(ctx, rounded, factor)
        )
    factor = like(x, 10.0 ** abs(decimals))
    if decimals < 0:
        return lax.mul(_round_half_even(divided(ctx, x, factor)), factor)
    return divided(ctx, _round_half_even(lax.mul(x, factor)), factor)


# --- elementary functions of one operand, integers promoted to float ---------


def _log2(x: Value) -> Value:
    """Base-2 logarithm, exact at powers of two: the exponent is taken from the bits."""
    scale = like(x, 1 / math.log(2))
    if is_complex(dtype_of(x)):
        return lax.mul(lax.log(x), scale)
    size = x.dtype.itemsize * 8
    width = 23 if size == 32 else 52
    bits = bits_of(x)
    bias = (1 << (size - 2 - width)) - 1
    exponent = lax.shift_right_arithmetic(bits, like(bits, width))
    mantissa_bits = lax.bitwise_and(bits, like(bits, (1 << width) - 1))
    # The mantissa is moved to [1/sqrt 2, sqrt 2), else values just below 1 would cancel.
    high = lax.gt(mantissa_bits, like(bits, math.floor((math.sqrt(2) - 1) * 2**width)))
    exponent = lax.add(lax.sub(exponent, like(bits, bias)), cast(high, dtype_of(bits)))
    unit = select(high, like(bits, (bias - 1) << width), like(bits, bias << width))
    mantissa = lax.bitcast_convert_type(lax.bitwise_or(mantissa_bits, unit), x.dtype)
    split = lax.add(cast(exponent, dtype_of(x)), lax.mul(lax.log(mantissa), scale))
    tiny = like(x, np.finfo(x.dtype).tiny)
    normal = lax.bitwise_and(lax.ge(x, tiny), lax.lt(x, like(x, math.inf)))
    return select(normal, split, lax.mul(lax.log(x), scale))


def sinc(x: Value) -> Value:
    """``sin(pi x) / (pi x)``, 1 at 0."""
    zero = lax.eq(x, like(x, 0))
    angle = lax.mul(select(zero, like(x, 1), x), like(x, math.pi))
    return select(zero, like(x, 1), lax.div(lax.sin(angle), angle))


def _times(factor: float) -> Function:
    return lambda x: lax.mul(x, like(x, factor))


def _exp2(x: Value) -> Value:
    return lax.exp(_times(math.log(2))(x)) if is_complex(dtype_of(x)) else exp2(x)


def _half_exp(size: Value) -> Value:
    """``exp(size) / 2`` of what is not negative: to the last digits, and where ``exp`` overflows.

    XLA's sinh and cosh take ``exp(x + log(1/2))``, whose sum loses as many digits as ``x`` has
    before the point.
    """
    far = lax.gt(size, like(size, math.log(np.finfo(size.dtype).max) - 1))
    half = lax.exp(select(far, lax.mul(size, like(size, 0.5)), size))
    return lax.mul(select(far, half, like(size, 1)), lax.mul(half, like(size, 0.5)))


def _cosh(x: Value) -> Value:
    if is_complex(dtype_of(x)):
        return lax.cosh(x)
    half = _half_exp(lax.abs(x))
    return lax.add(half, lax.div(like(x, 0.25), half))


def _sinh(x: Value) -> Value:
    if is_complex(dtype_of(x)):
        return lax.sinh(x)
    size = lax.abs(x)
    half = _half_exp(size)
    less = lax.expm1(lax.min(size, like(x, 1)))
    near = lax.mul(lax.add(less, lax.div(less, lax.add(less, like(x, 1)))), like(x, 0.5))
    far = lax.sub(half, lax.div(like(x, 0.25), half))
    return copysign(select(lax.lt(size, like(x, 1)), near, far), x)


_FLOATS: dict[str, Function] = {
    "acos": lax.acos,
    "acosh": lax.acosh,
    "asin": lax.asin,
    "asinh": lax.asinh,
    "atan": lax.atan,
    "atanh": lax.atanh,
    "cos": lax.cos,
    "cosh": _cosh,
    "deg2rad": _times(math.pi / 180),
    "exp": lax.exp,
    "exp2": _exp2,
    "expm1": lax.expm1,
    "log": lax.log,
    "log10": lambda x: _times(1 / math.log(10))(lax.log(x)),
    "log1p": lax.log1p,
    "log2": _log2,
    "rad2deg": _times(180 / math.pi),
    "reciprocal": lambda x: lax.div(like(x, 1), x),
    "rsqrt": lax.rsqrt,
    "sigmoid": lax.logistic,
    "sin": lax.sin,
    "sinc": sinc,
    "sinh": _sinh,
    "sqrt": lax.sqrt,
    "tan": lax.tan,
    "tanh": lax.tanh,
}


def _of_float(function: Function) -> Rule:
    def emit(ctx: RuleContext, self: Value) -> Value:
        return function(cast(self, float_dtype(ctx)))

    return emit


for _name, _function in _FLOATS.items():
    rule(_name)(_of_float(_function))


@rule("frexp.Tensor")
def _frexp(ctx: RuleContext, self: Value) -> tuple[Value, Value]:
    x = widened(self)
    size = x.dtype.itemsize * 8
    width, bias = (23, 127) if size == 32 else (52, 1023)
    bits = bits_of(x)
    # Bits alone: XLA's CPU takes a subnormal number for 0 in any float operation.
    fraction_mask = like(bits, (1 << width) - 1)
    fraction = lax.bitwise_and(bits, fraction_mask)
    field = lax.bitwise_and(
        lax.shift_right_logical(bits, like(bits, width)), like(bits, 2 * bias + 1)
    )
    zero = like(bits, 0)
    shift = lax.sub(lax.clz(fraction), like(bits, size - 1 - width))
    subnormal = lax.eq(field, zero)
    normalised = lax.bitwise_and(lax.shift_left(fraction, shift), fraction_mask)
    exponent = select(subnormal, lax.sub(like(bits, 1), shift), field)
    sign_bit = lax.bitwise_and(bits, like(bits, np.iinfo(bits.dtype).min))
    half = lax.bitwise_or(sign_bit, like(bits, (bias - 1) << width))
    half = lax.bitwise_or(half, select(subnormal, normalised, fraction))
    is_zero = lax.bitwise_and(subnormal, lax.eq(fraction, zero))
    plain = lax.bitwise_or(is_zero, lax.eq(field, like(bits, 2 * bias + 1)))  # 0, inf, NaN
    mantissa = lax.bitcast_convert_type(select(plain, bits, half), x.dtype)
    return mantissa, select(plain, zero, lax.sub(exponent, like(bits, bias - 1)))


# --- complex numbers ---------------------------------------------------------


@rule("conj_physical", "_conj_physical", "_conj", "_conj_copy")
def _conjugate(ctx: RuleContext, self: Value) -> Value:
    return lax.conj(self) if is_complex(dtype_of(self)) else self


@rule("_neg_view", "_neg_view_copy")
def _negative(ctx: RuleContext, self: Value) -> Value:
    return lax.neg(self)


@rule("view_as_real", "view_as_real_copy")
def _view_as_real(ctx: RuleContext, self: Value) -> Value:
    return jnp.stack((lax.real(self), lax.imag(self)), axis=-1)


@rule("view_as_complex", "view_as_complex_copy")
def _view_as_complex(ctx: RuleContext, self: Value) -> Value:
    return lax.complex(self[..., 0], self[..., 1])


@rule("complex")
def _complex(ctx: RuleContext, real: Value, imag: Value) -> Value:
    real, imag = computed(ctx, real, imag)
    return lax.complex(*(expand(v, ctx.out[0].shape) for v in (real, imag)))


@rule("polar")
def _polar(ctx: RuleContext, size: Value, angle: Value) -> Value:
    size, angle = computed(ctx, size, angle)
    real, imag = lax.mul(size, lax.cos(angle)), lax.mul(size, lax.sin(angle))
    return lax.complex(real, imag)


@rule("angle")
def _angle(ctx: RuleContext, self: Value) -> Value:
    if is_complex(dtype_of(self)):
        return lax.atan2(lax.imag(self), lax.real(self))
    x = cast(self, float_dtype(ctx))
    turned = select(lax.lt(x, like(x, 0)), like(x, math.pi), lax.full_like(x, 0))
    return select(lax.ne(x, x), x, turned)
