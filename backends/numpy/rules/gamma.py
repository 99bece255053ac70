"""The gamma function's family in NumPy: lgamma, digamma, zeta, incomplete gamma functions.

Everything takes and returns float64 arrays; DLMF is the NIST Digital Library of Mathematical
Functions, https://dlmf.nist.gov.
"""

from __future__ import annotations

import math

import numpy as np

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
"""B_2, B_4, ... B_16 (DLMF 24.2)."""
_FAR = 10.0
"""From here on the asymptotic series below are exact to float64 with these eight terms."""
_LOWEST = -1e4
"""Below, PyTorch's own sums over negative arguments do not end in reasonable time."""


def _is_pole(x: np.ndarray) -> np.ndarray:
    """Whether x is 0 or a negative integer."""
    return (x <= 0) & (np.floor(x) == x)


def lgamma(x: np.ndarray) -> np.ndarray:
    """Logarithm of ``|gamma(x)|``, by Python's own; infinite at the poles."""
    infinite = _is_pole(x) | np.isinf(x)
    safe = np.where(infinite, 1.0, x)
    values = np.asarray(np.frompyfunc(math.lgamma, 1, 1)(safe)).astype(np.float64)
    return np.where(infinite, math.inf, values)


def digamma(x: np.ndarray) -> np.ndarray:
    """Logarithmic derivative of gamma: DLMF 5.5.4 (reflection), 5.5.2 (recurrence), 5.11.2.

    At a zero, infinity of the opposite sign; NaN at the other poles.
    """
    low = x < 0.5
    y = np.where(low, 1 - x, x)
    total = np.zeros_like(y)
    for _ in range(int(_FAR)):
        small = y < _FAR
        total -= np.where(small, 1 / y, 0)
        y = np.where(small, y + 1, y)
    series = np.log(y) - 0.5 / y
    for k, number in enumerate(_BERNOULLI, 1):
        series -= number / (2 * k * y ** (2 * k))
    total = np.where(np.isposinf(y), y, total + series)
    turn = x - np.floor(x)  # tan has period 1 here: a small angle keeps its digits
    reflected = np.where(low, total - math.pi / np.tan(math.pi * turn), total)
    result = np.where((x < 0) & _is_pole(x) | np.isneginf(x), math.nan, reflected)
    return np.where(x == 0, np.copysign(math.inf, -x), result)


def zeta(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Hurwitz zeta by Euler and Maclaurin's sum (DLMF 25.11.5 and 2.10.1).

    Domain and poles are those of Cephes' zeta, which PyTorch uses.
    """
    x, start = (np.array(v) for v in np.broadcast_arrays(x, q))
    a, total = start, np.zeros_like(x)
    while np.any(small := (a < _FAR) & (a > _LOWEST)):
        total += np.where(small, np.power(a, -x), 0)
        a = np.where(small, a + 1, a)
    power = np.power(a, -x)
    total += power * a / (x - 1) + power / 2
    factor = x * power / a  # x (x+1) ... (x+2k-2) a^(-x-2k+1)
    for k, number in enumerate(_BERNOULLI, 1):
        total += number / math.factorial(2 * k) * factor
        factor = factor * (x + 2 * k - 1) * (x + 2 * k) / (a * a)
    total = np.where(np.isposinf(start) & (x > 1), 0.0, total)
    at_pole = (start <= 0) & ((np.floor(start) == start) | (np.floor(x) != x))
    pole = np.where(np.floor(start) == start, math.inf, math.nan)
    total = np.where(at_pole, pole, total)
    return np.where(x == 1, math.inf, np.where(x < 1, math.nan, total))


def polygamma(order: int, x: np.ndarray) -> np.ndarray:
    """``order``-th derivative of digamma (DLMF 5.15.1: through the Hurwitz zeta function)."""
    if order == 0:
        return digamma(x)
    if order == 1:
        return trigamma(x)
    factor = (-1.0) ** (order + 1) * math.factorial(order)
    return factor * zeta(np.array(order + 1.0), x)


def trigamma(x: np.ndarray) -> np.ndarray:
    """Derivative of digamma; below one half by reflection (DLMF 5.15.6)."""
    low = x < 0.5
    right = zeta(np.array(2.0), np.where(low, 1 - x, x))
    sine = np.sin(math.pi * x)
    return np.where(low, (math.pi / sine) ** 2 - right, right)


def mvlgamma(x: np.ndarray, p: int) -> np.ndarray:
    """Logarithm of the multivariate gamma function (DLMF 35.3.4)."""
    total = np.full_like(x, p * (p - 1) / 4 * math.log(math.pi))
    for j in range(p):
        total += lgamma(x - j / 2)
    return total


_STEPS = 20_000
"""Bound of the sums below; they stop as soon as no element changes."""


def _lower_series(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """``P(a, x)`` by its power series (DLMF 8.11.4), good for x < a + 1."""
    term = 1 / a
    total = term.copy()
    for k in range(1, _STEPS):
        term = term * x / (a + k)
        total += term
        if not np.any(np.abs(term) > np.abs(total) * 1e-17):
            break
    return total * np.exp(a * np.log(x) - x - lgamma(a))


def _upper_fraction(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """``Q(a, x)`` by its continued fraction (DLMF 8.9.2) and Lentz's method, good for x > a + 1."""
    tiny = 1e-300
    b = x + 1 - a
    c, d = np.full_like(b, 1 / tiny), 1 / b
    fraction = d.copy()
    for k in range(1, _STEPS):
        numerator = -k * (k - a)
        b = b + 2
        d = numerator * d + b
        d = 1 / np.where(np.abs(d) < tiny, tiny, d)
        c = b + numerator / c
        c = np.where(np.abs(c) < tiny, tiny, c)
        fraction *= c * d
        if not np.any(np.abs(c * d - 1) > 1e-16):
            break
    return fraction * np.exp(a * np.log(x) - x - lgamma(a))


def _incomplete(a: np.ndarray, x: np.ndarray, lower: bool) -> np.ndarray:
    """``P`` or ``Q``; the edges are those of PyTorch's ``calc_igamma``."""
    a, x = np.broadcast_arrays(a, x)
    plain = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    result = np.full(a.shape, math.nan)
    for part, function, is_lower in (
        (plain & (x < a + 1), _lower_series, True),
        (plain & (x >= a + 1), _upper_fraction, False),
    ):
        if np.any(part):
            found = function(a[part], x[part])
            result[part] = found if is_lower == lower else 1 - found
    one, zero = (1.0, 0.0) if lower else (0.0, 1.0)
    result[(a == 0) & (x > 0)] = one
    result[(a > 0) & (x == 0)] = zero
    result[np.isposinf(a) & (x >= 0) & np.isfinite(x)] = zero
    result[np.isfinite(a) & (a >= 0) & np.isposinf(x)] = one
    return result


def igamma(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Regularised lower incomplete gamma function ``P(a, x)`` (DLMF 8.2.4)."""
    return _incomplete(a, x, lower=True)


def igammac(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Regularised upper incomplete gamma function ``Q(a, x)`` (DLMF 8.2.4)."""
    return _incomplete(a, x, lower=False)
