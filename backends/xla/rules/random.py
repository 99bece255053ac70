"""XLA rules of random operators: Philox words turned into draws.

Element ``i`` of a result is made from word ``i`` (dtypes of up to 32 bits) or from the
``i``-th pair of words (64 bits) of the generator's (seed, offset), by the formulas below
and nothing else: any backend can draw the same numbers. The high bits of a word are used.
Half-precision draws are made in float32 and rounded, uniform ones from as many bits as
the dtype's significand has, so that the upper end stays excluded.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.backends.random import (
    DIGITS,
    Shape,
    register_bernoulli,
    register_integers,
    register_numbers,
    work_dtype,
)
from fuse.backends.xla import philox
from fuse.backends.xla.rules.context import RuleContext
from fuse.backends.xla.rules.elementwise import (
    REAL_OF,
    Value,
    cast,
    dtype_of,
    expand,
    is_complex,
    is_float,
    is_number,
    like,
    select,
    widened,
)
from fuse.backends.xla.rules.registry import rule
from fuse.backends.xla.rules.sorting import stable_order

# --- draws -------------------------------------------------------------------


def _bits(ctx: RuleContext, shape: Shape, width: int) -> Value:
    draw = philox.words64 if width == 64 else philox.words
    return lax.reshape(draw(ctx.seed, ctx.offset, math.prod(shape)), shape)


def _top(ctx: RuleContext, shape: Shape, digits: int) -> Value:
    """The ``digits`` high bits of each draw, as an unsigned integer."""
    bits = _bits(ctx, shape, 64 if digits > 32 else 32)
    return lax.shift_right_logical(bits, like(bits, bits.dtype.itemsize * 8 - digits))


def unit(ctx: RuleContext, shape: Shape, dtype: str) -> Value:
    """Uniform in [0, 1): ``top * 2**-digits`` for the digits of ``dtype``."""
    digits = DIGITS.get(dtype, 24)
    work = work_dtype(dtype)
    return lax.mul(cast(_top(ctx, shape, digits), work), cast(2.0**-digits, work))


def open_unit(ctx: RuleContext, shape: Shape, dtype: str) -> Value:
    """Uniform in (0, 1): odd multiples of ``2**-digits``, exact in the work dtype."""
    work = work_dtype(dtype)
    digits = DIGITS[work]
    top = _top(ctx, shape, digits - 1)
    odd = lax.bitwise_or(lax.shift_left(top, like(top, 1)), like(top, 1))
    return lax.mul(cast(odd, work), cast(2.0**-digits, work))


def standard_normal(ctx: RuleContext, shape: Shape, dtype: str) -> Value:
    """Normal by inversion: ``sqrt(2) erfinv(x)``, x an odd multiple of ``2**-digits`` in (-1, 1).

    Inversion takes one word and stays elementwise, where Box and Muller pair elements.
    XLA's erfinv is Giles' polynomial ("Approximating the erfinv function", 2010).
    """
    work = work_dtype(dtype)
    digits = DIGITS[work]
    top = _top(ctx, shape, digits)
    odd = lax.bitwise_or(lax.shift_left(top, like(top, 1)), like(top, 1))
    integer = "int64" if work == "float64" else "int32"
    centred = lax.sub(cast(odd, integer), cast(2**digits, integer))
    x = lax.mul(cast(centred, work), cast(2.0**-digits, work))
    return lax.mul(lax.erf_inv(x), cast(math.sqrt(2), work))


def below(ctx: RuleContext, shape: Shape, p: Value) -> Value:
    """True with probability ``p``, a number or a 0-d array: ``top < p * 2**24``."""
    top = _top(ctx, shape, 24)
    if is_number(p):
        return lax.lt(top, np.uint32(math.ceil(p * 2.0**24)))
    return lax.lt(top, cast(lax.ceil(lax.mul(p, like(p, 2.0**24))), "uint32"))


def below_each(ctx: RuleContext, shape: Shape, p: Value) -> Value:
    """True with the probability that ``p`` holds for each element."""
    p = expand(p, shape)
    if not is_float(dtype_of(p)):
        p = cast(p, "float32")
    p = widened(p)
    return lax.lt(unit(ctx, shape, dtype_of(p)), p)


def integers(ctx: RuleContext, shape: Shape, low: Value, span: Value) -> Value:
    """Uniform in [low, low + span), as int64 that wraps around.

    A span of up to 2**32 scales one word (multiply and take the high half); a larger one
    is the remainder of two words, as in PyTorch. One that varies is never larger
    (``fuse.trace.reach``).
    """
    if not is_number(span) or span <= 2**32:
        word = cast(_bits(ctx, shape, 32), "uint64")
        draw = lax.shift_right_logical(lax.mul(word, _unsigned(span)), np.uint64(32))
    else:
        draw = _bits(ctx, shape, 64)
        draw = draw if span == 2**64 else lax.rem(draw, np.uint64(span))
    return cast(lax.add(draw, _unsigned(low)), "int64")


def _unsigned(number: Value) -> Value:
    return np.uint64(number % 2**64) if is_number(number) else cast(number, "uint64")


# --- uniform and normal ------------------------------------------------------


def _real_or_complex(ctx: RuleContext, draw: Value) -> Value:
    """Draw the promised result; a complex one as pairs of a real and an imaginary part."""
    spec = ctx.out[0]
    if not is_complex(spec.dtype):
        return draw(ctx, spec.shape, spec.dtype)
    parts = draw(ctx, (*spec.shape, 2), REAL_OF[spec.dtype])
    return lax.complex(parts[..., 0], parts[..., 1])


@rule("uniform", "uniform_")
def _uniform(ctx: RuleContext, self: Value, low: Value = 0.0, high: Value = 1.0) -> Value:
    u = _real_or_complex(ctx, unit)
    if not is_complex(dtype_of(u)):
        return lax.add(lax.mul(u, like(u, high - low)), like(u, low))
    low, high = cast(low, REAL_OF[dtype_of(u)]), cast(high, REAL_OF[dtype_of(u)])
    corner = lax.complex(low, low)  # both parts are drawn from [low, high)
    return lax.add(lax.mul(u, cast(high - low, dtype_of(u))), corner)


def _normal_draw(ctx: RuleContext) -> Value:
    """Standard normal; of a complex number, each part has variance one half."""
    draw = _real_or_complex(ctx, standard_normal)
    return lax.mul(draw, like(draw, math.sqrt(0.5))) if is_complex(dtype_of(draw)) else draw


register_numbers(rule, lambda ctx: _real_or_complex(ctx, unit), _normal_draw)


@rule("normal_", "normal_functional")
def _normal(ctx: RuleContext, self: Value, mean: Value = 0.0, std: Value = 1.0) -> Value:
    draw = _normal_draw(ctx)
    middle = like(draw, mean)
    if is_complex(dtype_of(draw)):
        middle = lax.complex(lax.real(middle), lax.real(middle))  # the mean of either part
    return lax.add(lax.mul(draw, like(draw, std)), middle)


@rule("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def _normal_each(ctx: RuleContext, mean: Value, std: Value = 1.0) -> Value:
    draw = _normal_draw(ctx)
    mean, std = (expand(like(draw, value), draw.shape) for value in (mean, std))
    return lax.add(lax.mul(draw, std), mean)


@rule("normal.float_float")
def _normal_sized(
    ctx: RuleContext, mean: Value, std: Value, size: Shape, dtype: str | None = None
) -> Value:
    return _normal(ctx, None, mean, std)


@rule("log_normal", "log_normal_")
def _log_normal(ctx: RuleContext, self: Value, mean: Value = 1.0, std: Value = 2.0) -> Value:
    return lax.exp(_normal(ctx, self, mean, std))


# --- other continuous distributions ------------------------------------------


@rule("exponential", "exponential_")
def _exponential(ctx: RuleContext, self: Value, rate: Value = 1.0) -> Value:
    u = open_unit(ctx, ctx.out[0].shape, ctx.out[0].dtype)  # never 0: the draw is finite
    return lax.div(lax.neg(lax.log(u)), like(u, rate))


@rule("cauchy", "cauchy_")
def _cauchy(ctx: RuleContext, self: Value, median: Value = 0.0, sigma: Value = 1.0) -> Value:
    u = open_unit(ctx, ctx.out[0].shape, "float64")  # float32 has no room near the poles
    angle = lax.mul(lax.sub(u, like(u, 0.5)), like(u, math.pi))
    return lax.add(lax.mul(lax.tan(angle), like(u, sigma)), like(u, median))


# --- discrete distributions --------------------------------------------------


@rule("geometric", "geometric_")
def _geometric(ctx: RuleContext, self: Value, p: Value) -> Value:
    u = open_unit(ctx, ctx.out[0].shape, "float64")
    count = lax.ceil(lax.div(lax.log(u), lax.log1p(expand(lax.neg(like(u, p)), u.shape))))
    return lax.max(count, like(u, 1))


register_bernoulli(rule, below, below_each)
register_integers(rule, integers)


@rule("randint_like.Tensor", "randint_like.Tensor_generator")
def _randint_like_tensor(
    ctx: RuleContext, self: Value, high: Value, dtype: str | None = None
) -> Value:
    bits = _bits(ctx, ctx.out[0].shape, 64)
    return lax.rem(bits, expand(cast(high, "uint64"), bits.shape))


@rule("randperm", "randperm.generator")
def _randperm(ctx: RuleContext, n: int, dtype: str | None = None) -> Value:
    # 64-bit keys: among 2**20 of them two are equal with probability 3e-8.
    return stable_order(ctx, _bits(ctx, (n,), 64), 0, descending=False)


@rule("multinomial")
def _multinomial(
    ctx: RuleContext, self: Value, num_samples: int, replacement: bool = False
) -> Value:
    weights = widened(self)
    if replacement and num_samples > 1:
        return _with_replacement(ctx, weights)
    # Exponential race: the first arrivals are a sample without replacement (Efraimidis
    # and Spirakis, 2006); a weight of zero never arrives before another.
    race = lax.neg(lax.log(open_unit(ctx, weights.shape, dtype_of(weights))))
    return lax.top_k(lax.div(weights, race), num_samples)[1]


def _with_replacement(ctx: RuleContext, weights: Value) -> Value:
    """Inversion of the cumulative weights, clipped to the last category that has any."""
    shape = ctx.out[0].shape
    categories = weights.shape[-1]
    cumulative = lax.cumsum(weights, axis=weights.ndim - 1)
    total = cumulative[..., -1:]
    targets = lax.mul(unit(ctx, shape, dtype_of(weights)), expand(total, shape))
    rows = cumulative.reshape(-1, categories), targets.reshape(-1, shape[-1])
    found = jnp.vectorize(
        lambda row, target: jnp.searchsorted(row, target, side="right"),
        signature="(n),(m)->(m)",
    )(*rows).reshape(shape)
    last = lax.argmax(lax.ge(cumulative, expand(total, weights.shape)), weights.ndim - 1, jnp.int64)
    return lax.min(cast(found, "int64"), expand(last[..., None], shape))


# --- dropout and randomised activations --------------------------------------


def _reciprocal(keep: Value) -> Value:
    """One over the share that is kept; of none, 0."""
    if is_number(keep):
        return 0.0 if keep == 0 else 1.0 / keep
    return jnp.where(keep == 0, 0.0, 1.0 / keep)


@rule("native_dropout")
def _native_dropout(
    ctx: RuleContext, self: Value, p: Value, train: bool | None
) -> tuple[Value, Value]:
    if train is False:
        return self, lax.full_like(self, True, np.bool_)
    keep = 1.0 - p
    mask = below(ctx, self.shape, keep)
    x = widened(self)
    scale = _reciprocal(keep)
    # A product, not a selection: a dropped infinity is NaN, as in PyTorch.
    return lax.mul(lax.mul(x, cast(mask, dtype_of(x))), like(x, scale)), mask


@rule("rrelu_with_noise", "rrelu_with_noise_functional")
def _rrelu(
    ctx: RuleContext,
    self: Value,
    noise: Value,
    lower: Value = 0.125,
    upper: Value = 1 / 3,
    training: bool = False,
) -> tuple[Value, Value]:
    """Returns the result and the noise that it was made with (the operand it overwrites)."""
    x = widened(self)
    negative = lax.le(x, like(x, 0))
    if not training:
        slope = like(x, (lower + upper) / 2)
        return select(negative, lax.mul(x, slope), x), noise
    u = unit(ctx, x.shape, ctx.out[0].dtype)
    slopes = lax.add(lax.mul(u, like(u, upper - lower)), like(u, lower))
    drawn = select(negative, slopes, lax.full_like(slopes, 1))
    return lax.mul(x, drawn), drawn
