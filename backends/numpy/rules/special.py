"""NumPy rules of special functions: error, gamma, Bessel, zeta functions and their kin.

Each is computed in float64, by its series, recurrence or defining equation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fuse.backends.numpy.rules import gamma
from fuse.backends.numpy.rules.context import RuleContext, convert
from fuse.backends.numpy.rules.elementwise import floats
from fuse.backends.numpy.rules.registry import Rule, Value, rule

Function = Callable[..., np.ndarray]


def _each(function: Callable[[float], float]) -> Function:
    """One of Python's own functions, element by element."""
    ufunc = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(ufunc(x)).astype(np.float64)


# --- error functions ---------------------------------------------------------

erf = _each(math.erf)
erfc = _each(math.erfc)


def erfcx(x: np.ndarray) -> np.ndarray:
    """``exp(x*x) * erfc(x)``; from 10 on by its asymptotic series (DLMF 7.12.1)."""
    far = x > 10
    near = np.where(far, 0.0, x)
    large = np.where(far, x, 10.0)
    series = np.ones_like(x)
    for k in range(12, 0, -1):  # 1 + s (1 + 3 s (1 + 5 s (...))), s = -1 / (2 x^2)
        series = 1 - (2 * k - 1) * series / (2 * large * large)
    return np.where(far, series / (large * math.sqrt(math.pi)), np.exp(near * near) * erfc(near))


def log_ndtr(x: np.ndarray) -> np.ndarray:
    """Logarithm of the normal distribution function, exact in both tails."""
    t = x * math.sqrt(0.5)
    low = x < -1
    tail = np.log(erfcx(np.where(low, -t, 1.0)) / 2) - t * t
    return np.where(low, tail, np.log1p(-erfc(t) / 2))


def ndtri(p: np.ndarray) -> np.ndarray:
    """Inverse of the normal distribution function: Newton's method on its logarithm."""
    high = p > 0.5
    low = np.where(high, 1 - p, p)
    inside = (low > 0) & (low <= 0.5)
    target = np.log(np.where(inside, low, 0.5))
    x = -np.sqrt(np.maximum(-2 * target - math.log(4), 0))
    for _ in range(12):
        value = log_ndtr(x)
        slope = np.exp(-x * x / 2 - value) / math.sqrt(2 * math.pi)
        x = x - (value - target) / slope
    x = np.where(inside, x, np.where(low == 0, -math.inf, math.nan))
    return np.where(high, -x, x)


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


def erfinv(x: np.ndarray) -> np.ndarray:
    """Inverse error function: Newton's method on erf near 0, and on the tail's logarithm."""
    near = np.abs(x) < 0.5
    middle = np.where(near, x, 0.0)
    y = erfinv_float32(middle)
    for _ in range(3):
        y = y - (erf(y) - middle) * np.exp(y * y) * (math.sqrt(math.pi) / 2)
    tail = -ndtri((1 - np.abs(x)) / 2) * math.sqrt(0.5)
    return np.where(near, y, np.copysign(tail, x))


# --- modified Bessel functions -----------------------------------------------

_EDGE = 30.0
"""Below, the power series has only positive terms; above, the asymptotic one is exact enough."""


def _bessel_scaled(order: int, x: np.ndarray) -> np.ndarray:
    """``exp(-|x|) I_order(|x|)``: DLMF 10.25.2, and 10.40.1 far out."""
    size = np.abs(x)
    near, far = np.where(size < _EDGE, size, 0.0), np.where(size < _EDGE, _EDGE, size)
    term = (near / 2) ** order
    total = term.copy()
    for k in range(1, 80):
        term = term * (near / 2) ** 2 / (k * (k + order))
        total = total + term
    term = np.ones_like(x)
    series = term.copy()
    for k in range(1, 20):
        term = term * -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k * far)
        series = series + term
    scaled = np.where(size < _EDGE, total * np.exp(-near), series / np.sqrt(2 * math.pi * far))
    return np.where(np.isnan(x), x, scaled)


def i0e(x: np.ndarray) -> np.ndarray:
    """Exponentially scaled modified Bessel function of order 0."""
    return _bessel_scaled(0, x)


def i1e(x: np.ndarray) -> np.ndarray:
    """Exponentially scaled modified Bessel function of order 1: odd."""
    return np.copysign(1.0, x) * _bessel_scaled(1, x)


def spherical_bessel_j0(x: np.ndarray) -> np.ndarray:
    """``sin(x) / x``; near 0 by its series (DLMF 10.53.1), 0 at infinity."""
    series = np.ones_like(x)
    for k in range(8, 0, -1):
        series = 1 - x * x / (2 * k * (2 * k + 1)) * series
    ratio = np.where(np.isinf(x), 0.0, np.sin(x) / x)
    return np.where(np.abs(x) < 0.5, series, ratio)


# --- logarithms --------------------------------------------------------------


def entropy(x: np.ndarray) -> np.ndarray:
    """``-x log x``; 0 at 0 and -inf below."""
    return np.where(x < 0, -math.inf, np.where(x == 0, 0.0, -x * np.log(x)))


def _product_with(function: Function) -> Function:
    def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        value = np.where(x == 0, 0.0, x * function(y))
        return np.where(np.isnan(y), y, value)

    return product


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
    return gamma.polygamma(n, convert(self, "float64"))


@rule("mvlgamma")
def _mvlgamma(ctx: RuleContext, self: np.ndarray, p: int) -> np.ndarray:
    return gamma.mvlgamma(convert(self, "float64"), p)


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
    "digamma": gamma.digamma,
    "erf": erf,
    "erfc": erfc,
    "erfinv": erfinv,
    "lgamma": gamma.lgamma,
    "special_entr": entropy,
    "special_erfcx": erfcx,
    "special_i0e": i0e,
    "special_i1e": i1e,
    "special_log_ndtr": log_ndtr,
    "special_ndtri": ndtri,
    "special_spherical_bessel_j0": spherical_bessel_j0,
}
_GROWING: dict[tuple[str, ...], Function] = {
    ("i0", "special_modified_bessel_i0"): i0e,
    ("special_i1", "special_modified_bessel_i1"): i1e,
}
_TWO: dict[tuple[str, ...], Function] = {
    ("igamma",): gamma.igamma,
    ("igammac",): gamma.igammac,
    ("special_zeta", "special_zeta.other_scalar", "special_zeta.self_scalar"): gamma.zeta,
    ("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self"): _product_with(np.log),
    (
        "special_xlog1py",
        "special_xlog1py.other_scalar",
        "special_xlog1py.self_scalar",
    ): _product_with(np.log1p),
}
for _name, _function in _ONE.items():
    rule(_name)(_of_doubles(_function))
for _names, _function in _GROWING.items():
    rule(*_names)(_times_exp(_function))
for _names, _function in _TWO.items():
    rule(*_names)(_of_doubles(_function))
