"""XLA rules of comparisons, logic, bits, selection and bounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jax import lax

from fuse.backends.overloads import BITS, COMPARISONS, EXTREMES
from fuse.backends.xla.rules.context import RuleContext
from fuse.backends.xla.rules.elementwise import (
    Value,
    cast,
    convert,
    dtype_of,
    exact,
    is_complex,
    is_float,
    is_negative,
    larger,
    like,
    select,
    smaller,
    spread,
)
from fuse.backends.xla.rules.registry import Rule, rule

Function = Callable[..., Value]


def is_nan(x: Value) -> Value:
    """Whether each element is NaN; a complex number is when a part of it is."""
    if is_float(dtype_of(x)) or is_complex(dtype_of(x)):
        return lax.ne(x, x)
    return lax.full_like(x, False, np.bool_)


def _of_two(function: Function) -> Rule:
    def emit(ctx: RuleContext, self: Value, other: Value) -> Value:
        return function(*exact(ctx, self, other))

    return emit


# --- comparisons and logic ---------------------------------------------------

_COMPARISONS: dict[str, Function] = {
    "eq": lax.eq,
    "ne": lax.ne,
    "lt": lax.lt,
    "le": lax.le,
    "gt": lax.gt,
    "ge": lax.ge,
}
for _name, _function in _COMPARISONS.items():
    rule(*COMPARISONS[_name])(_of_two(_function))


def truth(x: Value) -> Value:
    """Whether each element is nonzero; NaN is."""
    return x if dtype_of(x) == "bool" else lax.ne(x, like(x, 0))


def _of_truth(function: Function) -> Rule:
    def emit(ctx: RuleContext, *operands: Value) -> Value:
        return function(*spread(*(truth(operand) for operand in operands)))

    return emit


_LOGIC: dict[str, Function] = {
    "logical_and": lax.bitwise_and,
    "logical_or": lax.bitwise_or,
    "logical_xor": lax.bitwise_xor,
    "logical_not": lax.bitwise_not,
}
for _name, _function in _LOGIC.items():
    rule(_name)(_of_truth(_function))


# --- bits --------------------------------------------------------------------


def shift_right(x: Value, y: Value) -> Value:
    """Arithmetic shift of signed, logical shift of unsigned integers.

    A distance that is negative or not below the width counts as the width, in XLA as in
    PyTorch: the result is then all sign bits, or 0.
    """
    if dtype_of(x).startswith("u"):
        return lax.shift_right_logical(x, y)
    return lax.shift_right_arithmetic(x, y)


_BITWISE: dict[str, Function] = {
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "left": lax.shift_left,
    "right": shift_right,
}
for _name, _function in _BITWISE.items():
    rule(*BITS[_name])(_of_two(_function))


@rule("bitwise_not")
def _bitwise_not(ctx: RuleContext, self: Value) -> Value:
    return lax.bitwise_not(self)


# --- classes of numbers ------------------------------------------------------


@rule("isnan")
def _isnan(ctx: RuleContext, self: Value) -> Value:
    return is_nan(self)


@rule("isinf")
def _isinf(ctx: RuleContext, self: Value) -> Value:
    if is_complex(dtype_of(self)):
        parts = (lax.abs(lax.real(self)), lax.abs(lax.imag(self)))
        return lax.bitwise_or(*(lax.eq(part, like(part, math.inf)) for part in parts))
    if not is_float(dtype_of(self)):
        return lax.full_like(self, False, np.bool_)
    return lax.eq(lax.abs(self), like(self, math.inf))


def _equals(number: float) -> Rule:
    def emit(ctx: RuleContext, self: Value) -> Value:
        if not is_float(dtype_of(self)):
            return lax.full_like(self, False, np.bool_)
        return lax.eq(self, like(self, number))

    return emit


rule("isposinf")(_equals(math.inf))
rule("isneginf")(_equals(-math.inf))


@rule("signbit")
def _signbit(ctx: RuleContext, self: Value) -> Value:
    return is_negative(self)


@rule("heaviside")
def _heaviside(ctx: RuleContext, self: Value, values: Value) -> Value:
    x, values = exact(ctx, self, values)
    zero = like(x, 0)
    return select(lax.eq(x, zero), values, cast(lax.gt(x, zero), dtype_of(x)))


@rule("nan_to_num")
def _nan_to_num(
    ctx: RuleContext,
    self: Value,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Value:
    if is_complex(dtype_of(self)):
        parts = (lax.real(self), lax.imag(self))
        return lax.complex(*(_nan_to_num(ctx, part, nan, posinf, neginf) for part in parts))
    if not is_float(dtype_of(self)):
        return self
    largest = float(np.finfo(self.dtype).max) if self.dtype.itemsize > 2 else _largest(self)
    result = select(is_nan(self), like(self, 0.0 if nan is None else nan), self)
    for infinity, given, default in ((math.inf, posinf, largest), (-math.inf, neginf, -largest)):
        number = like(self, default if given is None else given)
        result = select(lax.eq(self, like(self, infinity)), number, result)
    return result


def _largest(x: Value) -> float:
    """The largest finite number of a half-precision dtype."""
    return 65504.0 if dtype_of(x) == "float16" else 2.0**128 - 2.0**120


# --- larger and smaller ------------------------------------------------------


def _ignoring_nan(beats: Function) -> Function:
    def pick(x: Value, y: Value) -> Value:
        other = beats(x, y)
        if is_float(dtype_of(x)):
            other = lax.bitwise_or(other, is_nan(x))
        return select(other, y, x)

    return pick


_EXTREMES: dict[str, Function] = {
    "larger": larger,
    "smaller": smaller,
    "fmax": _ignoring_nan(lax.lt),
    "fmin": _ignoring_nan(lax.gt),
}
for _name, _function in _EXTREMES.items():
    rule(*EXTREMES[_name])(_of_two(_function))


@rule("clamp", "clamp.Tensor")
def _clamp(ctx: RuleContext, self: Value, min: Value = None, max: Value = None) -> Value:  # noqa: A002
    bounds = [bound for bound in (min, max) if bound is not None]
    x, *bounds = exact(ctx, self, *bounds)
    if min is not None:
        x = larger(x, bounds.pop(0))
    if max is not None:  # last, so that the upper bound wins where the two cross
        x = smaller(x, bounds[0])
    return x


# --- selection ---------------------------------------------------------------


@rule("where.self")
def _where(ctx: RuleContext, condition: Value, self: Value, other: Value) -> Value:
    dtype = ctx.out[0].dtype
    return select(truth(condition), cast(self, dtype), cast(other, dtype))


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(ctx: RuleContext, self: Value, mask: Value, value: Value) -> Value:
    return select(truth(mask), convert(value, dtype_of(self)), self)
