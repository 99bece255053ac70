"""XLA rules of distributions whose draws may be rejected: gamma, Poisson, binomial.

An element that is rejected is drawn again from a block of its own (``philox.pairs``), so that its
numbers depend on no other element, nor on which backend draws them. All elements are tried
together, until each has been accepted once: a handful of rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.backends.random import DIGITS, LARGE, LAST, MOST_ATTEMPTS, MOST_STEPS, Shape, work_dtype
from fuse.backends.xla import philox
from fuse.backends.xla.rules.context import RuleContext
from fuse.backends.xla.rules.elementwise import Value, cast, expand, like, select
from fuse.backends.xla.rules.registry import rule

Attempt = Callable[[Value], tuple[Value, Value]]


def _open_units(ctx: RuleContext, shape: Shape, work: str, attempt: Value) -> tuple[Value, Value]:
    """Two uniform numbers in (0, 1) an element: odd multiples of ``2**-digits``."""
    digits = DIGITS[work]
    found = []
    for bits in philox.pairs(ctx.seed, ctx.offset, math.prod(shape), attempt):
        top = lax.shift_right_logical(bits, np.uint64(65 - digits))
        odd = lax.bitwise_or(lax.shift_left(top, np.uint64(1)), np.uint64(1))
        unit = lax.mul(cast(odd, work), cast(2.0**-digits, work))
        found.append(lax.reshape(unit, shape))
    return found[0], found[1]


def _first_accepted(attempt: Attempt, done: Value, otherwise: Value) -> Value:
    """What each element's first accepted attempt gives; ``otherwise`` where ``done`` is true."""

    def goes_on(state: tuple[Value, Value, Value]) -> Value:
        number, done, _ = state
        return lax.bitwise_and(lax.lt(number, np.uint32(MOST_ATTEMPTS)), ~jnp.all(done))

    def again(state: tuple[Value, Value, Value]) -> tuple[Value, Value, Value]:
        number, done, value = state
        accepted, drawn = attempt(number)
        takes = lax.bitwise_and(accepted, lax.bitwise_not(done))
        return lax.add(number, np.uint32(1)), done | accepted, select(takes, drawn, value)

    found: Value = lax.while_loop(goes_on, again, (jnp.uint32(0), done, otherwise))[2]
    return found


def _steps_below(
    unit: Value, first: Value, following: Callable[[Value, Value], Value], active: Value
) -> Value:
    """Inversion step by step: how many counts the cumulated probability stays below ``unit``.

    ``first`` is the probability of zero, ``following(p, k)`` that of ``k`` after ``k - 1``'s.
    """

    def below(total: Value) -> Value:
        return lax.bitwise_and(active, lax.lt(total, unit))

    def goes_on(state: tuple[Value, Value, Value, Value]) -> Value:
        step, total, _, _ = state
        return jnp.any(below(total)) & lax.lt(step, np.float64(MOST_STEPS))

    def onward(state: tuple[Value, Value, Value, Value]) -> tuple[Value, Value, Value, Value]:
        step, total, p, count = state
        step = lax.add(step, np.float64(1))
        p = following(p, step)
        moves = below(total)
        return step, lax.add(total, p), p, lax.add(count, cast(moves, "float64"))

    state = (jnp.float64(0), first, first, lax.full_like(first, 0))
    found: Value = lax.while_loop(goes_on, onward, state)[3]
    return found


@rule("_standard_gamma")
def _standard_gamma(ctx: RuleContext, self: Value) -> Value:
    """Marsaglia and Tsang, "A simple method for generating gamma variables" (2000).

    Below one by their boost: a draw of one more, times ``u ** (1 / alpha)``.
    """
    work = work_dtype(ctx.out[0].dtype)
    alpha = cast(self, work)
    small = lax.lt(alpha, like(alpha, 1))
    d = lax.sub(lax.add(alpha, cast(small, work)), like(alpha, 1 / 3))
    c = lax.rsqrt(lax.mul(d, like(d, 9)))

    def attempt(number: Value) -> tuple[Value, Value]:
        first, second = _open_units(ctx, alpha.shape, work, number)
        centred = lax.sub(lax.mul(first, like(first, 2)), like(first, 1))
        x = lax.mul(lax.erf_inv(centred), like(first, math.sqrt(2)))
        root = lax.add(lax.mul(c, x), like(c, 1))
        v = lax.mul(lax.mul(root, root), root)
        bound = lax.mul(lax.mul(x, x), like(x, 0.5)) + d - d * v + d * lax.log(v)
        accepted = lax.gt(v, like(v, 0)) & lax.lt(lax.log(second), bound)
        return accepted, lax.mul(d, v)

    valid = lax.gt(alpha, like(alpha, 0)) & lax.is_finite(alpha)
    drawn = _first_accepted(attempt, ~valid, lax.full_like(alpha, jnp.nan))
    u, _ = _open_units(ctx, alpha.shape, work, np.uint32(LAST))
    boost = lax.exp(lax.div(lax.log(u), alpha))
    sample = select(small, lax.mul(drawn, boost), drawn)
    sample = select(lax.eq(alpha, like(alpha, 0)), lax.full_like(alpha, 0), sample)
    return lax.max(sample, like(sample, float(np.finfo(work).tiny)))


@rule("_standard_gamma_grad")
def _standard_gamma_grad(ctx: RuleContext, self: Value, output: Value) -> Value:
    """How a draw moves with its parameter, by implicit differentiation."""
    work = work_dtype(ctx.out[0].dtype)
    shape = ctx.out[0].shape
    return lax.random_gamma_grad(expand(cast(self, work), shape), expand(cast(output, work), shape))


@rule("poisson")
def _poisson(ctx: RuleContext, self: Value) -> Value:
    """Inversion of small rates; else PTRS of Hormann, "The transformed rejection method for
    generating Poisson random variables" (1993)."""
    rate = cast(self, "float64")
    small = lax.lt(rate, like(rate, LARGE))
    u, _ = _open_units(ctx, rate.shape, "float64", np.uint32(LAST))
    few = _steps_below(u, lax.exp(-rate), lambda p, step: lax.div(lax.mul(p, rate), step), small)

    large = select(small, lax.full_like(rate, LARGE), rate)
    b = 0.931 + 2.53 * lax.sqrt(large)
    a = -0.059 + 0.02483 * b
    inverse = lax.log(1.1239 + 1.1328 / (b - 3.4))
    log_rate = lax.log(large)

    def attempt(number: Value) -> tuple[Value, Value]:
        first, v = _open_units(ctx, rate.shape, "float64", number)
        u = first - 0.5
        us = 0.5 - lax.abs(u)
        k = lax.floor((2 * a / us + b) * u + large + 0.43)
        at_once = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
        never = (k < 0) | ((us < 0.013) & (v > us))
        bound = k * log_rate - large - lax.lgamma(lax.max(k, like(k, 0)) + 1)
        within = lax.log(v) + inverse - lax.log(a / (us * us) + b) <= bound
        return at_once | (~never & within), k

    valid = lax.ge(rate, like(rate, 0)) & lax.is_finite(rate)
    many = _first_accepted(attempt, small | ~valid, lax.full_like(rate, jnp.nan))
    return select(small & valid, few, many)


@rule("binomial")
def _binomial(ctx: RuleContext, count: Value, prob: Value) -> Value:
    """Inversion where few are expected; else BTRS of Hormann, "The generation of binomial random
    variates" (1993), with the probabilities' ratio written out."""
    shape = ctx.out[0].shape
    n, p = (expand(cast(one, "float64"), shape) for one in (count, prob))
    flipped = p > 0.5
    q = select(flipped, 1 - p, p)
    valid = (n >= 0) & lax.is_finite(n) & (q >= 0)
    odds = q / (1 - q)
    small = n * q < LARGE
    u, _ = _open_units(ctx, shape, "float64", np.uint32(LAST))
    none = lax.exp(n * lax.log1p(-q))
    few = _steps_below(u, none, lambda p, step: p * odds * (n - step + 1) / step, small)
    few = lax.min(few, n)

    n_of = select(small | ~valid, lax.full_like(n, 4 * LARGE), n)
    q_of = select(small | ~valid, lax.full_like(q, 0.5), q)
    spread = lax.sqrt(n_of * q_of * (1 - q_of))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * q_of
    alpha = (2.83 + 5.1 / b) * spread
    mode = lax.floor((n_of + 1) * q_of)
    log_odds = lax.log(q_of / (1 - q_of))

    def arrangements(k: Value) -> Value:
        return lax.lgamma(k + 1) + lax.lgamma(n_of - k + 1)

    def attempt(number: Value) -> tuple[Value, Value]:
        first, v = _open_units(ctx, shape, "float64", number)
        u = first - 0.5
        us = 0.5 - lax.abs(u)
        k = lax.floor((2 * a / us + b) * u + n_of * q_of + 0.5)
        at_once = (us >= 0.07) & (v <= 0.92 - 4.2 / b)
        inside = (k >= 0) & (k <= n_of)
        held = lax.clamp(like(k, 0.0), k, n_of)
        bound = arrangements(mode) - arrangements(held) + (held - mode) * log_odds
        within = lax.log(v * alpha / (a / (us * us) + b)) <= bound
        return inside & (at_once | within), k

    many = _first_accepted(attempt, small | ~valid, lax.full_like(n, jnp.nan))
    found = select(small & valid, few, many)
    return select(flipped, n - found, found)
