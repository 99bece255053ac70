"""NumPy rules of one operand: signs, rounding, elementary functions, complex numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fuse.backends.numpy.rules.context import RuleContext
from fuse.backends.numpy.rules.elementwise import (
    floats,
    is_complex,
    is_float,
    make_complex,
)
from fuse.backends.numpy.rules.registry import Rule, rule

Function = Callable[[np.ndarray], np.ndarray]


# --- one operand, same dtype -------------------------------------------------


def sign(x: np.ndarray) -> np.ndarray:
    """-1, 0 or 1; of NaN it is 0, as on PyTorch's CPU; of a complex number its direction."""
    if is_complex(x):
        size = np.abs(x)
        return np.where(size == 0, 0, x / np.where(size == 0, 1, size))
    if x.dtype == np.bool_:
        return x
    return np.greater(x, 0).astype(np.int8) - np.less(x, 0).astype(np.int8)


def _of_floats(function: Function) -> Function:
    """A function that leaves integers as they are."""
    return lambda x: function(x) if is_float(x) else x


def _of_self(function: Function) -> Rule:
    def define(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
        return function(ctx.widened(self))

    return define


_SAME_DTYPE: dict[str, Function] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": sign,
    "sgn": sign,
    "ceil": _of_floats(np.ceil),
    "floor": _of_floats(np.floor),
    "round": _of_floats(np.rint),
    "trunc": _of_floats(np.trunc),
    "frac": lambda x: x - np.trunc(x),
}
for _name, _function in _SAME_DTYPE.items():
    rule(_name)(_of_self(_function))


@rule("round.decimals")
def _round_decimals(ctx: RuleContext, self: np.ndarray, decimals: int) -> np.ndarray:
    x = ctx.widened(self)
    if not is_float(x):
        return x
    factor = x.dtype.type(10.0 ** abs(decimals))
    return np.rint(x / factor) * factor if decimals < 0 else np.rint(x * factor) / factor


# --- elementary functions of one operand, integers promoted to float ---------


def sinc(x: np.ndarray) -> np.ndarray:
    """``sin(pi x) / (pi x)``, 1 at 0."""
    angle = np.where(x == 0, 1, x) * x.dtype.type(math.pi)
    return np.where(x == 0, 1, np.sin(angle) / angle)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """``1 / (1 + exp(-x))``."""
    return 1 / (1 + np.exp(-x))


_FLOATS: dict[str, Function] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cos": np.cos,
    "cosh": np.cosh,
    "deg2rad": lambda x: x * (math.pi / 180),
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "rad2deg": lambda x: x * (180 / math.pi),
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": sigmoid,
    "sin": np.sin,
    "sinc": sinc,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}


def _of_float(function: Function) -> Rule:
    def define(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
        return function(*floats(ctx, self))

    return define


for _name, _function in _FLOATS.items():
    rule(_name)(_of_float(_function))


@rule("frexp.Tensor")
def _frexp(ctx: RuleContext, self: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.frexp(ctx.widened(self))


# --- complex numbers ---------------------------------------------------------


@rule("conj_physical", "_conj_physical", "_conj", "_conj_copy")
def _conjugate(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
    return np.conj(self) if is_complex(self) else self


@rule("_neg_view", "_neg_view_copy")
def _negative(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
    return np.negative(self)


@rule("view_as_real", "view_as_real_copy")
def _view_as_real(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
    return np.stack((self.real, self.imag), axis=-1)


@rule("view_as_complex", "view_as_complex_copy")
def _view_as_complex(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
    return make_complex(self[..., 0], self[..., 1])


@rule("complex")
def _complex(ctx: RuleContext, real: np.ndarray, imag: np.ndarray) -> np.ndarray:
    return make_complex(*ctx.computed(real, imag))


@rule("polar")
def _polar(ctx: RuleContext, size: np.ndarray, angle: np.ndarray) -> np.ndarray:
    size, angle = ctx.computed(size, angle)
    return make_complex(size * np.cos(angle), size * np.sin(angle))


@rule("angle")
def _angle(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
    if is_complex(self):
        return np.arctan2(self.imag, self.real)
    (x,) = floats(ctx, self)
    return np.where(x != x, x, np.where(x < 0, math.pi, 0))
