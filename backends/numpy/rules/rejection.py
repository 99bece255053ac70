"""NumPy rules of distributions whose draws may be rejected: gamma, Poisson, binomial.

An element that is rejected is drawn again from a block of its own (``philox.pairs``), so that its
numbers depend on no other element, nor on which backend draws them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from fuse.backends.numpy import philox
from fuse.backends.numpy.rules.context import RuleContext
from fuse.backends.numpy.rules.registry import rule
from fuse.backends.numpy.rules.special import erfinv_float32, lgamma
from fuse.backends.random import DIGITS, LARGE, LAST, MOST_ATTEMPTS, MOST_STEPS, Shape, work_dtype

Array = np.ndarray
Attempt = Callable[[int], tuple[Array, Array]]


def _open_units(ctx: RuleContext, shape: Shape, work: str, attempt: int) -> tuple[Array, Array]:
    """Two uniform numbers in (0, 1) an element: odd multiples of ``2**-digits``."""
    assert ctx.seed is not None
    assert ctx.offset is not None
    digits = DIGITS[work]
    first, second = (
        (
            (2 * (bits >> np.uint64(65 - digits)) + 1).astype(work)
            * np.dtype(work).type(2.0**-digits)
        )
        for bits in philox.pairs(ctx.seed, ctx.offset, math.prod(shape), attempt)
    )
    return first.reshape(shape), second.reshape(shape)


def _first_accepted(attempt: Attempt, done: Array, otherwise: Array) -> Array:
    """What each element's first accepted attempt gives; ``otherwise`` where ``done`` is true."""
    value, number = otherwise, 0
    while number < MOST_ATTEMPTS and not done.all():
        accepted, drawn = attempt(number)
        value = np.where(accepted & ~done, drawn, value)
        done, number = done | accepted, number + 1
    return value


def _steps_below(
    unit: Array, first: Array, following: Callable[[Array, int], Array], active: Array
) -> Array:
    """Inversion step by step: how many counts the cumulated probability stays below ``unit``.

    ``first`` is the probability of zero, ``following(p, k)`` that of ``k`` after ``k - 1``'s.
    """
    total, p, count = first, first, np.zeros_like(first)
    for step in range(1, MOST_STEPS + 1):
        below = active & (total < unit)
        if not below.any():
            break
        count, p = count + below, following(p, step)
        total = total + p
    return count


@rule("_standard_gamma")
def _standard_gamma(ctx: RuleContext, self: Array) -> Array:
    """Marsaglia and Tsang, "A simple method for generating gamma variables" (2000).

    Below one by their boost: a draw of one more, times ``u ** (1 / alpha)``.
    """
    work = work_dtype(ctx.out[0].dtype)
    alpha = self.astype(work)
    number_of = alpha.dtype.type
    small = alpha < 1
    d = alpha + small.astype(work) - number_of(1 / 3)
    c = 1 / np.sqrt(d * 9)

    def attempt(number: int) -> tuple[Array, Array]:
        first, second = _open_units(ctx, alpha.shape, work, number)
        centred = 2 * first - 1
        inverse = special.erfinv(centred) if work == "float64" else erfinv_float32(centred)
        x = inverse * number_of(math.sqrt(2))
        v = (c * x + 1) ** 3
        bound = x * x * number_of(0.5) + d - d * v + d * np.log(np.maximum(v, np.finfo(work).tiny))
        return (v > 0) & (np.log(second) < bound), d * v

    valid = (alpha > 0) & np.isfinite(alpha)
    drawn = _first_accepted(attempt, ~valid, np.full_like(alpha, math.nan))
    u, _ = _open_units(ctx, alpha.shape, work, LAST)
    sample = np.where(small, drawn * np.exp(np.log(u) / alpha), drawn)
    return np.maximum(np.where(alpha == 0, 0, sample), np.finfo(work).tiny)


@rule("_standard_gamma_grad")
def _standard_gamma_grad(ctx: RuleContext, self: Array, output: Array) -> Array:
    """How a draw moves with its parameter: the derivative of the quantile that it is, by a central
    difference in float64, from the tail that it is nearer to."""
    alpha, value = self.astype(np.float64), output.astype(np.float64)
    step = 1e-5 * alpha
    below, above = special.gammainc(alpha, value), special.gammaincc(alpha, value)

    def quantile(parameter: Array) -> Array:
        low, high = special.gammaincinv(parameter, below), special.gammainccinv(parameter, above)
        return np.where(below < 0.5, low, high)

    return (quantile(alpha + step) - quantile(alpha - step)) / (2 * step)


@rule("poisson")
def _poisson(ctx: RuleContext, self: Array) -> Array:
    """Inversion of small rates; else PTRS of Hormann, "The transformed rejection method for
    generating Poisson random variables" (1993)."""
    rate = self.astype(np.float64)
    small = rate < LARGE
    u, _ = _open_units(ctx, rate.shape, "float64", LAST)
    few = _steps_below(u, np.exp(-rate), lambda p, step: p * rate / step, small)

    large = np.where(small, LARGE, rate)
    b = 0.931 + 2.53 * np.sqrt(large)
    a = -0.059 + 0.02483 * b
    inverse = np.log(1.1239 + 1.1328 / (b - 3.4))

    def attempt(number: int) -> tuple[Array, Array]:
        first, v = _open_units(ctx, rate.shape, "float64", number)
        u = first - 0.5
        us = 0.5 - np.abs(u)
        k = np.floor((2 * a / us + b) * u + large + 0.43)
        at_once = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
        never = (k < 0) | ((us < 0.013) & (v > us))
        bound = k * np.log(large) - large - lgamma(np.maximum(k, 0) + 1)
        within = np.log(v) + inverse - np.log(a / (us * us) + b) <= bound
        return at_once | (~never & within), k

    valid = (rate >= 0) & np.isfinite(rate)
    many = _first_accepted(attempt, small | ~valid, np.full_like(rate, math.nan))
    return np.where(small & valid, few, many)


@rule("binomial")
def _binomial(ctx: RuleContext, count: Array, prob: Array) -> Array:
    """Inversion where few are expected; else BTRS of Hormann, "The generation of binomial random
    variates" (1993), with the probabilities' ratio written out."""
    shape = ctx.out[0].shape
    n, p = (np.broadcast_to(one.astype(np.float64), shape) for one in (count, prob))
    flipped = p > 0.5
    q = np.where(flipped, 1 - p, p)
    valid = (n >= 0) & np.isfinite(n) & (q >= 0)
    odds = q / (1 - q)
    small = n * q < LARGE
    u, _ = _open_units(ctx, shape, "float64", LAST)
    none = np.exp(n * np.log1p(-q))
    few = _steps_below(u, none, lambda p, step: p * odds * (n - step + 1) / step, small)
    few = np.minimum(few, n)

    n_of, q_of = np.where(small | ~valid, 4 * LARGE, n), np.where(small | ~valid, 0.5, q)
    spread = np.sqrt(n_of * q_of * (1 - q_of))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * q_of
    alpha = (2.83 + 5.1 / b) * spread
    mode = np.floor((n_of + 1) * q_of)

    def arrangements(k: Array) -> Array:
        return lgamma(k + 1) + lgamma(n_of - k + 1)

    def attempt(number: int) -> tuple[Array, Array]:
        first, v = _open_units(ctx, shape, "float64", number)
        u = first - 0.5
        us = 0.5 - np.abs(u)
        k = np.floor((2 * a / us + b) * u + n_of * q_of + 0.5)
        at_once = (us >= 0.07) & (v <= 0.92 - 4.2 / b)
        inside = (k >= 0) & (k <= n_of)
        held = np.clip(k, 0, n_of)
        bound = arrangements(mode) - arrangements(held) + (held - mode) * np.log(q_of / (1 - q_of))
        within = np.log(v * alpha / (a / (us * us) + b)) <= bound
        return inside & (at_once | within), k

    many = _first_accepted(attempt, small | ~valid, np.full_like(n, math.nan))
    found = np.where(small & valid, few, many)
    return np.where(flipped, n - found, found)
