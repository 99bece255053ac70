"""NumPy rules of the classical orthogonal polynomials, by their three-term recurrences.

DLMF table 18.9.1; the shifted Chebyshev polynomials are the plain ones of ``2 x - 1``. The
degree is a number an element: the recurrence runs to the largest, and each element stops at
its own. A negative degree gives 0, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fuse.backends.numpy.rules.context import RuleContext
from fuse.backends.numpy.rules.elementwise import floats
from fuse.backends.numpy.rules.registry import Rule, Value, rule

First = Callable[[np.ndarray], np.ndarray]
"""The polynomial of degree 1."""
Next = Callable[[np.ndarray, int, np.ndarray, np.ndarray], np.ndarray]
"""From (x, k, degree k, degree k - 1) to degree k + 1."""


def evaluate(x: np.ndarray, degree: np.ndarray, first: First, following: Next) -> np.ndarray:
    """The polynomial of each element's degree (truncated to an integer) at each x."""
    x, degree = np.broadcast_arrays(x, np.trunc(degree))
    before, now = np.ones_like(x), first(x)
    result = np.where(degree == 0, before, np.where(degree == 1, now, 0))
    for k in range(1, int(degree.max(initial=0))):
        before, now = now, following(x, k, now, before)
        result = np.where(degree == k + 1, now, result)
    return result


_FAMILIES: dict[str, tuple[First, Next]] = {
    "chebyshev_polynomial_t": (lambda x: x, lambda x, k, now, before: 2 * x * now - before),
    "chebyshev_polynomial_u": (lambda x: 2 * x, lambda x, k, now, before: 2 * x * now - before),
    "chebyshev_polynomial_v": (lambda x: 2 * x - 1, lambda x, k, now, before: 2 * x * now - before),
    "chebyshev_polynomial_w": (lambda x: 2 * x + 1, lambda x, k, now, before: 2 * x * now - before),
    "hermite_polynomial_h": (
        lambda x: 2 * x,
        lambda x, k, now, before: 2 * (x * now - k * before),
    ),
    "hermite_polynomial_he": (lambda x: x, lambda x, k, now, before: x * now - k * before),
    "laguerre_polynomial_l": (
        lambda x: 1 - x,
        lambda x, k, now, before: ((2 * k + 1 - x) * now - k * before) / (k + 1),
    ),
    "legendre_polynomial_p": (
        lambda x: x,
        lambda x, k, now, before: ((2 * k + 1) * x * now - k * before) / (k + 1),
    ),
}


def _of_family(first: First, following: Next, shifted: bool) -> Rule:
    def define(ctx: RuleContext, x: Value, degree: Value) -> np.ndarray:
        x, degree = floats(ctx, x, degree)
        return evaluate(2 * x - 1 if shifted else x, degree, first, following)

    return define


for _name, (_first, _following) in _FAMILIES.items():
    for _shifted in (False, True) if _name.startswith("chebyshev") else (False,):
        _base = f"special_{'shifted_' * _shifted}{_name}"
        rule(_base, f"{_base}.x_scalar", f"{_base}.n_scalar")(
            _of_family(_first, _following, _shifted)
        )
