"""NumPy rules of special functions: error, gamma, Bessel, zeta functions and their kin.

They are SciPy's, in float64, but where PyTorch has them otherwise at an edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from fuse.backends.numpy.rules.context import RuleContext, convert
from fuse.backends.numpy.rules.elementwise import floats
from fuse.backends.numpy.rules.registry import Rule, Value, rule

Function = Callable[..., np.ndarray]

_CENTRE = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_TAIL = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


def erfinv_float32(x: np.ndarray) -> np.ndarray:
    """Inverse error function to about 3e-7, in the dtype of x.

    Giles, "Approximating the erfinv function" (GPU Computing Gems, 2010), table 5: what other
    backends compute too, which makes their normal draws agree.
    """
    w = -np.log1p(-x * x)
    centre, tail = np.zeros_like(x), np.zeros_like(x)
    for low, high in zip(_CENTRE, _TAIL, strict=True):
        centre = centre * (w - x.dtype.type(2.5)) + x.dtype.type(low)
        tail = tail * (np.sqrt(w) - x.dtype.type(3)) + x.dtype.type(high)
    return x * np.where(w < 5, centre, tail)


def spherical_bessel_j0(x: np.ndarray) -> np.ndarray:
    """``sin(x) / x``."""
    return special.spherical_jn(0, x)


def lgamma(x: np.ndarray) -> np.ndarray:
    """Logarithm of ``|gamma(x)|``; infinite at minus infinity, as C has it."""
    return np.where(np.isneginf(x), math.inf, special.gammaln(x))


def trigamma(x: np.ndarray) -> np.ndarray:
    """Derivative of digamma; below one half by reflection (DLMF 5.15.6), as PyTorch has it."""
    low = x < 0.5
    right = special.zeta(2.0, np.where(low, 1 - x, x))
    return np.where(low, (math.pi / np.sin(math.pi * x)) ** 2 - right, right)


@rule("logit")
def _logit(ctx: RuleContext, self: np.ndarray, eps: float | None = None) -> np.ndarray:
    (x,) = floats(ctx, self)
    if eps is not None:
        x = np.minimum(np.maximum(x, x.dtype.type(eps)), 1 - x.dtype.type(eps))
    return np.log(x / (1 - x))


@rule("logit_backward")
def _logit_backward(
    ctx: RuleContext, grad: np.ndarray, self: np.ndarray, eps: float | None = None
) -> np.ndarray:
    grad, x = floats(ctx, grad, self)
    low = 0.0 if eps is None else eps
    outside = (x < low) | (x > 1 - low)
    return np.where(outside, math.nan if eps is None else 0.0, grad / (x * (1 - x)))


# --- tables ------------------------------------------------------------------


@rule("polygamma")
def _polygamma(ctx: RuleContext, n: int, self: np.ndarray) -> np.ndarray:
    x = convert(self, "float64")
    return trigamma(x) if n == 1 else special.polygamma(n, x)


@rule("mvlgamma")
def _mvlgamma(ctx: RuleContext, self: np.ndarray, p: int) -> np.ndarray:
    """DLMF 35.3.4."""
    x = convert(self, "float64")
    total = np.full_like(x, p * (p - 1) / 4 * math.log(math.pi))
    for j in range(p):
        total += lgamma(x - j / 2)
    return total


def _of_doubles(function: Function) -> Rule:
    def define(ctx: RuleContext, *operands: Value) -> np.ndarray:
        # A Scalar is first rounded to the dtype the result has.
        return function(*(convert(v, "float64") for v in floats(ctx, *operands)))

    return define


def _times_exp(function: Function) -> Rule:
    """Undo the scaling by ``exp(-|x|)``; overflows where the exponential does in x's dtype."""

    def define(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
        (x,) = floats(ctx, self)
        return np.exp(np.abs(x)) * function(x.astype(np.float64)).astype(x.dtype)

    return define


_ONE: dict[str, Function] = {
    "digamma": special.digamma,
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "lgamma": lgamma,
    "special_entr": special.entr,
    "special_erfcx": special.erfcx,
    "special_i0e": special.i0e,
    "special_i1e": special.i1e,
    "special_log_ndtr": special.log_ndtr,
    "special_ndtri": special.ndtri,
    "special_spherical_bessel_j0": spherical_bessel_j0,
}
_GROWING: dict[tuple[str, ...], Function] = {
    ("i0", "special_modified_bessel_i0"): special.i0e,
    ("special_i1", "special_modified_bessel_i1"): special.i1e,
}
_OF_SCALARS = ("", ".other_scalar", ".self_scalar")
_TWO: dict[tuple[str, ...], Function] = {
    ("igamma",): special.gammainc,
    ("igammac",): special.gammaincc,
    tuple(f"special_zeta{of}" for of in _OF_SCALARS): special.zeta,
    ("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self"): special.xlogy,
    tuple(f"special_xlog1py{of}" for of in _OF_SCALARS): special.xlog1py,
}
for _name, _function in _ONE.items():
    rule(_name)(_of_doubles(_function))
for _names, _function in _GROWING.items():
    rule(*_names)(_times_exp(_function))
for _names, _function in _TWO.items():
    rule(*_names)(_of_doubles(_function))
