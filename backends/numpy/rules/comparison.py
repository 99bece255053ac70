"""NumPy rules of comparisons, logic, bits, selection and bounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fuse.backends.numpy.rules.context import RuleContext, convert
from fuse.backends.numpy.rules.elementwise import (
    is_complex,
    is_float,
    is_nan,
    larger,
    make_complex,
    smaller,
)
from fuse.backends.numpy.rules.registry import Rule, Scalar, Value, rule
from fuse.backends.overloads import BITS, COMPARISONS, EXTREMES

Function = Callable[..., np.ndarray]


def _of_two(function: Function) -> Rule:
    def define(ctx: RuleContext, self: Value, other: Value) -> np.ndarray:
        return function(*ctx.promoted(self, other))

    return define


# --- comparisons and logic ---------------------------------------------------

_COMPARISONS: dict[str, Function] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
for _name, _function in _COMPARISONS.items():
    rule(*COMPARISONS[_name])(_of_two(_function))


def _of_truth(function: Function) -> Rule:
    """A function of whether each element is nonzero; NaN is."""

    def define(ctx: RuleContext, *operands: np.ndarray) -> np.ndarray:
        return function(*(convert(operand, "bool") for operand in operands))

    return define


_LOGIC: dict[str, Function] = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
}
for _name, _function in _LOGIC.items():
    rule(_name)(_of_truth(_function))


# --- bits --------------------------------------------------------------------


def _refuse_floats(ctx: RuleContext, *_operands: object) -> str | None:
    whole = ctx.result_type == "bool" or "int" in ctx.result_type
    return None if whole else f"the bits of {ctx.result_type} numbers"


_BITWISE: dict[str, Function] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    # A distance that is negative or not below the width counts as the width, in NumPy as in
    # PyTorch: the result is then 0, or of a shift to the right all sign bits.
    "left": np.left_shift,
    "right": np.right_shift,
}
for _name, _function in _BITWISE.items():
    rule(*BITS[_name], refuse=_refuse_floats)(_of_two(_function))


@rule("bitwise_not", refuse=_refuse_floats)
def _bitwise_not(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
    return np.invert(self)


# --- classes of numbers ------------------------------------------------------


@rule("isnan")
def _isnan(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
    return is_nan(self)


@rule("isinf")
def _isinf(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
    return np.isinf(ctx.widened(self))


def _equals(number: float) -> Rule:
    def define(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
        return np.equal(ctx.widened(self), number)

    return define


rule("isposinf")(_equals(math.inf))
rule("isneginf")(_equals(-math.inf))


@rule("signbit")
def _signbit(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
    return np.signbit(ctx.widened(self)) if is_float(self) else np.less(self, 0)


@rule("heaviside")
def _heaviside(ctx: RuleContext, self: np.ndarray, values: np.ndarray) -> np.ndarray:
    x, values = ctx.promoted(self, values)
    return np.where(x == 0, values, (x > 0).astype(x.dtype))


@rule("nan_to_num")
def _nan_to_num(
    ctx: RuleContext,
    self: np.ndarray,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> np.ndarray:
    if is_complex(self):
        parts = (_nan_to_num(ctx, part, nan, posinf, neginf) for part in (self.real, self.imag))
        return make_complex(*parts)
    if not is_float(self):
        return self
    x = ctx.widened(self)
    largest = _LARGEST.get(self.dtype.name) or float(np.finfo(self.dtype).max)
    result = np.where(is_nan(x), 0.0 if nan is None else nan, x)
    result = np.where(x == math.inf, largest if posinf is None else posinf, result)
    return np.where(x == -math.inf, -largest if neginf is None else neginf, result)


_LARGEST = {"bfloat16": 2.0**128 - 2.0**120}


# --- larger and smaller ------------------------------------------------------


def _ignoring_nan(beats: Function) -> Function:
    def pick(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(beats(x, y) | is_nan(x), y, x)

    return pick


_EXTREMES: dict[str, Function] = {
    "larger": larger,
    "smaller": smaller,
    "fmax": _ignoring_nan(np.less),
    "fmin": _ignoring_nan(np.greater),
}
for _name, _function in _EXTREMES.items():
    rule(*EXTREMES[_name])(_of_two(_function))


@rule("clamp", "clamp.Tensor")
def _clamp(
    ctx: RuleContext, self: np.ndarray, low: Value | None = None, high: Value | None = None
) -> np.ndarray:
    (x,) = ctx.promoted(self)
    if low is not None:
        x = larger(x, *ctx.promoted(low))
    if high is not None:  # last, so that the upper bound wins where the two cross
        x = smaller(x, *ctx.promoted(high))
    return x


# --- selection ---------------------------------------------------------------


@rule("where.self")
def _where(ctx: RuleContext, condition: np.ndarray, self: Value, other: Value) -> np.ndarray:
    dtype = ctx.out[0].dtype
    return np.where(convert(condition, "bool"), convert(self, dtype), convert(other, dtype))


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(ctx: RuleContext, self: np.ndarray, mask: np.ndarray, value: Scalar) -> np.ndarray:
    return np.where(convert(mask, "bool"), convert(value, self.dtype.name), self)
