"""XLA rules of the classical orthogonal polynomials, by their three-term recurrences.

DLMF table 18.9.1; the shifted Chebyshev polynomials are the plain ones of ``2 x - 1``.
The degree is a number an element: the recurrence runs to the largest, and each element
stops at its own. A negative degree gives 0, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax import lax

from fuse.backends.xla.rules.context import RuleContext
from fuse.backends.xla.rules.elementwise import (
    Value,
    cast,
    dtype_of,
    expand,
    floats,
    like,
    select,
)
from fuse.backends.xla.rules.registry import Rule, rule

First = Callable[[Value], Value]
"""The polynomial of degree 1."""
Next = Callable[[Value, Value, Value, Value], Value]
"""From (x, k, degree k, degree k - 1) to degree k + 1."""


def _affine(scale: float, shift: float) -> First:
    return lambda x: lax.add(lax.mul(x, like(x, scale)), like(x, shift))


def _chebyshev(x: Value, k: Value, now: Value, before: Value) -> Value:
    return lax.sub(lax.mul(_affine(2, 0)(x), now), before)


def _hermite_h(x: Value, k: Value, now: Value, before: Value) -> Value:
    return _affine(2, 0)(lax.sub(lax.mul(x, now), lax.mul(k, before)))


def _hermite_he(x: Value, k: Value, now: Value, before: Value) -> Value:
    return lax.sub(lax.mul(x, now), lax.mul(k, before))


def _laguerre(x: Value, k: Value, now: Value, before: Value) -> Value:
    left = lax.mul(lax.sub(_affine(2, 1)(k), x), now)
    return lax.div(lax.sub(left, lax.mul(k, before)), _affine(1, 1)(k))


def _legendre(x: Value, k: Value, now: Value, before: Value) -> Value:
    left = lax.mul(lax.mul(_affine(2, 1)(k), x), now)
    return lax.div(lax.sub(left, lax.mul(k, before)), _affine(1, 1)(k))


def evaluate(x: Value, degree: Value, first: First, following: Next) -> Value:
    """The polynomial of each element's degree at each x.

    Args:
        x: float array.
        degree: array of the same dtype, truncated to an integer; broadcasts with x.
        first: the polynomial of degree 1.
        following: the recurrence.
    """
    shape = np.broadcast_shapes(np.shape(x), np.shape(degree))
    x, degree = expand(x, shape), cast(expand(degree, shape), "int64")
    last = lax.reduce_max(degree, range(len(shape)))
    one = lax.full_like(x, 1)

    def step(state: tuple[Value, Value, Value]) -> tuple[Value, Value, Value]:
        k, now, before = state
        grown = following(x, cast(k, dtype_of(x)), now, before)
        active = lax.lt(expand(k, shape), degree)
        return lax.add(k, np.int64(1)), select(active, grown, now), select(active, now, before)

    start = (np.int64(1), first(x), one)
    result = lax.while_loop(lambda state: lax.lt(state[0], last), step, start)[1]
    result = select(lax.eq(degree, np.int64(0)), one, result)
    return select(lax.lt(degree, np.int64(0)), lax.full_like(x, 0), result)


_FAMILIES: dict[str, tuple[First, Next]] = {
    "chebyshev_polynomial_t": (_affine(1, 0), _chebyshev),
    "chebyshev_polynomial_u": (_affine(2, 0), _chebyshev),
    "chebyshev_polynomial_v": (_affine(2, -1), _chebyshev),
    "chebyshev_polynomial_w": (_affine(2, 1), _chebyshev),
    "hermite_polynomial_h": (_affine(2, 0), _hermite_h),
    "hermite_polynomial_he": (_affine(1, 0), _hermite_he),
    "laguerre_polynomial_l": (_affine(-1, 1), _laguerre),
    "legendre_polynomial_p": (_affine(1, 0), _legendre),
}


def _of_family(first: First, following: Next, shifted: bool) -> Rule:
    def emit(ctx: RuleContext, x: Value, degree: Value) -> Value:
        x, degree = floats(ctx, x, degree)
        return evaluate(_affine(2, -1)(x) if shifted else x, degree, first, following)

    return emit


def _register() -> None:
    for name, (first, following) in _FAMILIES.items():
        for shifted in (False, True) if name.startswith("chebyshev") else (False,):
            base = f"special_{'shifted_' * shifted}{name}"
            overloads = (base, f"{base}.x_scalar", f"{base}.n_scalar")
            rule(*overloads)(_of_family(first, following, shifted))


_register()
