"""XLA rules of special functions: error, gamma, Bessel, zeta functions and their kin."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax.numpy as jnp
import jax.scipy.special as jsp
from jax import lax

from fuse.backends.xla.rules.context import RuleContext
from fuse.backends.xla.rules.elementwise import (
    Value,
    cast,
    dtype_of,
    float_dtype,
    floats,
    like,
    select,
)
from fuse.backends.xla.rules.registry import Rule, rule

Function = Callable[..., Value]


# --- gamma functions ---------------------------------------------------------


def digamma(x: Value) -> Value:
    """Logarithmic derivative of gamma; at a zero, infinity of the opposite sign."""
    zero = lax.eq(x, like(x, 0))
    pole = lax.div(like(x, -1), x)
    return select(zero, pole, lax.digamma(x))


def polygamma(order: int, x: Value) -> Value:
    """``order``-th derivative of digamma (DLMF 5.15.1: through the Hurwitz zeta function)."""
    if order == 0:
        return digamma(x)
    if order == 1:
        return trigamma(x)
    factor = (-1.0) ** (order + 1) * math.factorial(order)
    return lax.mul(like(x, factor), zeta(like(x, order + 1.0), x))


def trigamma(x: Value) -> Value:
    """Derivative of digamma; below one half by reflection (DLMF 5.15.6)."""
    low = lax.lt(x, like(x, 0.5))
    sine = lax.sin(lax.mul(x, like(x, math.pi)))
    positive = select(low, lax.sub(like(x, 1), x), x)
    right = lax.zeta(lax.full_like(x, 2), positive)
    right = select(lax.eq(positive, like(x, math.inf)), like(x, 0), right)  # XLA has NaN
    left = lax.sub(lax.div(like(x, math.pi**2), lax.mul(sine, sine)), right)
    return select(low, left, right)


def _zeta_of_integer(x: Value, q: Value) -> Value:
    """Hurwitz zeta; below ``q = 1`` terms are summed one by one until q has grown to 1.

    XLA sums nine terms whatever q is, which is wrong for a negative q.
    """
    lowest, one = like(x, -1e4), like(x, 1)  # beyond, PyTorch's own sum does not end

    def small(q: Value) -> Value:
        return lax.bitwise_and(lax.lt(q, one), lax.gt(q, lowest))

    def step(state: tuple[Value, Value]) -> tuple[Value, Value]:
        total, q = state
        low = small(q)
        term = select(low, lax.pow(q, lax.neg(x)), like(x, 0))
        return lax.add(total, term), select(low, lax.add(q, one), q)

    start = (lax.full_like(x, 0), q)
    total, q = lax.while_loop(lambda state: jnp.any(small(state[1])), step, start)
    return lax.add(total, lax.zeta(x, q))


def zeta(x: Value, q: Value) -> Value:
    """Hurwitz zeta function, with the poles and domain of PyTorch (Cephes' zeta)."""
    if not jnp.ndim(x):
        x = lax.full_like(q, x)
    if not jnp.ndim(q):
        q = lax.full_like(x, q)
    one, zero = like(x, 1), like(x, 0)
    infinity, nan = like(x, math.inf), like(x, math.nan)
    inner = _zeta_of_integer(x, q)
    pole = select(lax.eq(lax.floor(q), q), infinity, nan)
    fractional = lax.ne(lax.floor(x), x)
    at_pole = lax.bitwise_or(lax.eq(lax.floor(q), q), fractional)
    inner = select(lax.bitwise_and(lax.le(q, zero), at_pole), pole, inner)
    inner = select(lax.lt(x, one), nan, inner)
    return select(lax.eq(x, one), infinity, inner)


@rule("polygamma")
def _polygamma(ctx: RuleContext, n: int, self: Value) -> Value:
    return polygamma(n, cast(self, float_dtype(ctx)))


@rule("mvlgamma")
def _mvlgamma(ctx: RuleContext, self: Value, p: int) -> Value:
    x = cast(self, float_dtype(ctx))
    total = lax.full_like(x, p * (p - 1) / 4 * math.log(math.pi))
    for j in range(p):
        total = lax.add(total, lax.lgamma(lax.sub(x, like(x, j / 2))))
    return total


# --- error functions ---------------------------------------------------------


def erfcx(x: Value) -> Value:
    """``exp(x*x) * erfc(x)``: the product where it is exact, an asymptotic series beyond.

    DLMF 7.12.1. From ``edge`` on, ``TERMS`` terms leave an error below the dtype's
    epsilon, and below it ``x*x`` is small enough for its rounding not to show.
    """
    edge, terms = (5.0, 8) if dtype_of(x) == "float32" else (10.0, 12)
    far = lax.gt(x, like(x, edge))
    near = select(far, like(x, 0), x)
    product = lax.mul(lax.exp(lax.mul(near, near)), lax.erfc(near))
    large = select(far, x, like(x, edge))
    step = lax.div(like(x, -0.5), lax.mul(large, large))
    series = lax.full_like(x, 1)
    for k in range(terms, 0, -1):  # 1 + s (1 + 3 s (1 + 5 s (...)))
        series = lax.add(like(x, 1), lax.mul(lax.mul(like(x, 2 * k - 1), step), series))
    scale = lax.div(like(x, 1 / math.sqrt(math.pi)), large)
    return select(far, lax.mul(scale, series), product)


def log_ndtr(x: Value) -> Value:
    """Logarithm of the normal distribution function, exact in both tails."""
    low = lax.lt(x, like(x, -1))
    half_root = like(x, math.sqrt(0.5))
    t = lax.mul(x, half_root)
    below = lax.neg(select(low, t, like(x, -1)))
    tail = lax.sub(lax.log(lax.mul(erfcx(below), like(x, 0.5))), lax.mul(t, t))
    body = lax.log1p(lax.mul(lax.erfc(t), like(x, -0.5)))
    return select(low, tail, body)


def entropy(x: Value) -> Value:
    """``-x log x``; 0 at 0 and -inf below."""
    zero = like(x, 0)
    inside = lax.mul(lax.neg(x), lax.log(x))
    return select(lax.lt(x, zero), like(x, -math.inf), select(lax.eq(x, zero), zero, inside))


def spherical_bessel_j0(x: Value) -> Value:
    """``sin(x) / x``; near 0 by its series (DLMF 10.53.1), 0 at infinity."""
    square = lax.mul(x, x)
    series = lax.full_like(x, 1)
    for k in range(6, 0, -1):
        series = lax.sub(
            like(x, 1), lax.mul(lax.mul(square, like(x, 1 / (2 * k * (2 * k + 1)))), series)
        )
    ratio = select(lax.eq(lax.abs(x), like(x, math.inf)), like(x, 0), lax.div(lax.sin(x), x))
    return select(lax.lt(lax.abs(x), like(x, 0.5)), series, ratio)


# --- products with logarithms ------------------------------------------------


def _product_with(function: Function) -> Function:
    def product(x: Value, y: Value) -> Value:
        value = lax.mul(x, function(y))
        value = select(lax.eq(x, like(y, 0)), like(y, 0), value)
        return select(lax.ne(y, y), y, value)

    return product


xlogy = _product_with(lax.log)
xlog1py = _product_with(lax.log1p)


# --- logit -------------------------------------------------------------------


@rule("logit")
def _logit(ctx: RuleContext, self: Value, eps: float | None = None) -> Value:
    x = cast(self, float_dtype(ctx))
    if eps is not None:
        x = lax.min(lax.max(x, like(x, eps)), lax.sub(like(x, 1), like(x, eps)))
    return lax.log(lax.div(x, lax.sub(like(x, 1), x)))


@rule("logit_backward")
def _logit_backward(ctx: RuleContext, grad: Value, self: Value, eps: float | None = None) -> Value:
    grad, x = floats(ctx, grad, self)
    low = 0.0 if eps is None else eps
    outside = lax.bitwise_or(lax.lt(x, like(x, low)), lax.gt(x, like(x, 1 - low)))
    slope = lax.div(grad, lax.mul(x, lax.sub(like(x, 1), x)))
    return select(outside, like(x, math.nan if eps is None else 0.0), slope)


# --- tables ------------------------------------------------------------------


def _of_one(function: Function) -> Rule:
    def emit(ctx: RuleContext, self: Value) -> Value:
        return function(cast(self, float_dtype(ctx)))

    return emit


def _of_two(function: Function) -> Rule:
    def emit(ctx: RuleContext, self: Value, other: Value) -> Value:
        return function(*floats(ctx, self, other))

    return emit


def _times_exp(function: Function) -> Function:
    """Undo the scaling by ``exp(-|x|)`` of an exponentially scaled Bessel function."""
    return lambda x: lax.mul(lax.exp(lax.abs(x)), function(x))


_ONE: dict[str, Function] = {
    "digamma": digamma,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erfinv": lax.erf_inv,
    "i0": _times_exp(lax.bessel_i0e),
    "lgamma": lax.lgamma,
    "special_entr": entropy,
    "special_erfcx": erfcx,
    "special_i0e": lax.bessel_i0e,
    "special_i1": _times_exp(lax.bessel_i1e),
    "special_i1e": lax.bessel_i1e,
    "special_log_ndtr": log_ndtr,
    "special_modified_bessel_i0": _times_exp(lax.bessel_i0e),
    "special_modified_bessel_i1": _times_exp(lax.bessel_i1e),
    "special_ndtri": jsp.ndtri,
    "special_spherical_bessel_j0": spherical_bessel_j0,
}
for _name, _function in _ONE.items():
    rule(_name)(_of_one(_function))

for _names, _function in (
    (("igamma",), lax.igamma),
    (("igammac",), lax.igammac),
    (("special_zeta", "special_zeta.other_scalar", "special_zeta.self_scalar"), zeta),
    (("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self"), xlogy),
    (("special_xlog1py", "special_xlog1py.other_scalar", "special_xlog1py.self_scalar"), xlog1py),
):
    rule(*_names)(_of_two(_function))
