"""NumPy rules of random operators: Philox words turned into draws.

Element ``i`` of a result is made from word ``i`` (dtypes of up to 32 bits) or from the ``i``-th
pair of words (64 bits) of the generator's (seed, offset), by the formulas below and nothing
else: any backend can draw the same numbers. The high bits of a word are used. Half-precision
draws are made in float32 and rounded, uniform ones from as many bits as the dtype's significand
has, so that the upper end stays excluded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from fuse.backends.numpy import philox
from fuse.backends.numpy.rules.context import RuleContext, convert
from fuse.backends.numpy.rules.elementwise import REAL_OF, is_complex, is_float, like, make_complex
from fuse.backends.numpy.rules.registry import Value, rule
from fuse.backends.numpy.rules.special import erfinv_float32
from fuse.backends.random import (
    DIGITS,
    Shape,
    register_bernoulli,
    register_integers,
    register_numbers,
    work_dtype,
)

Array = np.ndarray

# --- draws -------------------------------------------------------------------


def _bits(ctx: RuleContext, shape: Shape, width: int) -> Array:
    assert ctx.seed is not None
    assert ctx.offset is not None
    draw = philox.words64 if width == 64 else philox.words
    return draw(ctx.seed, ctx.offset, math.prod(shape)).reshape(shape)


def _top(ctx: RuleContext, shape: Shape, digits: int) -> Array:
    """The ``digits`` high bits of each draw, as an unsigned integer."""
    bits = _bits(ctx, shape, 64 if digits > 32 else 32)
    return bits >> bits.dtype.type(bits.dtype.itemsize * 8 - digits)


def unit(ctx: RuleContext, shape: Shape, dtype: str) -> Array:
    """Uniform in [0, 1): ``top * 2**-digits`` for the digits of ``dtype``."""
    digits = DIGITS.get(dtype, 24)
    return _top(ctx, shape, digits).astype(work_dtype(dtype)) * 2.0**-digits


def open_unit(ctx: RuleContext, shape: Shape, dtype: str) -> Array:
    """Uniform in (0, 1): odd multiples of ``2**-digits``, exact in the work dtype."""
    work = work_dtype(dtype)
    digits = DIGITS[work]
    odd = 2 * _top(ctx, shape, digits - 1) + 1
    return odd.astype(work) * 2.0**-digits


def standard_normal(ctx: RuleContext, shape: Shape, dtype: str) -> Array:
    """Normal by inversion: ``sqrt(2) erfinv(x)``, x an odd multiple of ``2**-digits`` in (-1, 1).

    Inversion takes one word and stays elementwise, where Box and Muller pair elements.
    """
    work = work_dtype(dtype)
    digits = DIGITS[work]
    odd = 2 * _top(ctx, shape, digits).astype(np.int64) + 1
    x = (odd - 2**digits).astype(work) * 2.0**-digits
    inverse = special.erfinv(x) if work == "float64" else erfinv_float32(x)
    return inverse * like(inverse, math.sqrt(2))


def below(ctx: RuleContext, shape: Shape, p: float) -> Array:
    """True with probability ``p``: ``top < p * 2**24``."""
    return _top(ctx, shape, 24) < math.ceil(p * 2.0**24)


def below_each(ctx: RuleContext, shape: Shape, p: Array) -> Array:
    """True with the probability that ``p`` holds for each element."""
    p = ctx.widened(p) if is_float(p) else p.astype(np.float32)
    return unit(ctx, shape, p.dtype.name) < p


def integers(ctx: RuleContext, shape: Shape, low: int, span: int) -> Array:
    """Uniform in [low, low + span), as int64 that wraps around.

    A span of up to 2**32 scales one word (multiply and take the high half); a larger one is the
    remainder of two words, as in PyTorch.
    """
    if span <= 2**32:
        draw = (_bits(ctx, shape, 32).astype(np.uint64) * np.uint64(span)) >> np.uint64(32)
    else:
        draw = _bits(ctx, shape, 64)
        draw = draw if span == 2**64 else draw % np.uint64(span)
    return (draw + np.uint64(low % 2**64)).astype(np.int64)


# --- uniform and normal ------------------------------------------------------

Draw = Callable[[RuleContext, Shape, str], Array]


def _real_or_complex(ctx: RuleContext, draw: Draw) -> Array:
    """Draw the promised result; a complex one as pairs of a real and an imaginary part."""
    spec = ctx.out[0]
    if spec.dtype not in REAL_OF:
        return draw(ctx, spec.shape, spec.dtype)
    parts = draw(ctx, (*spec.shape, 2), REAL_OF[spec.dtype])
    return make_complex(parts[..., 0], parts[..., 1])


@rule("uniform", "uniform_")
def _uniform(ctx: RuleContext, self: Array | None, low: float = 0.0, high: float = 1.0) -> Array:
    u = _real_or_complex(ctx, unit)
    corner = complex(low, low) if is_complex(u) else low  # both parts lie in [low, high)
    return u * like(u, high - low) + like(u, corner)


def _normal_draw(ctx: RuleContext) -> Array:
    """Standard normal; of a complex number, each part has variance one half."""
    draw = _real_or_complex(ctx, standard_normal)
    return draw * like(draw, math.sqrt(0.5)) if is_complex(draw) else draw


register_numbers(rule, lambda ctx: _real_or_complex(ctx, unit), _normal_draw)


@rule("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def _normal_each(ctx: RuleContext, mean: Value, std: Value = 1.0) -> Array:
    draw = _normal_draw(ctx)
    return draw * like(draw, std) + like(draw, mean)


@rule("normal_", "normal_functional")
def _normal(ctx: RuleContext, self: Array | None, mean: float = 0.0, std: float = 1.0) -> Array:
    draw = _normal_draw(ctx)
    middle = like(draw, mean)
    if is_complex(draw):
        middle = middle.real + 1j * middle.real  # the mean of either part
    return draw * like(draw, std) + middle


@rule("normal.float_float")
def _normal_sized(
    ctx: RuleContext, mean: float, std: float, size: Shape, dtype: str | None = None
) -> Array:
    return _normal(ctx, None, mean, std)


@rule("log_normal", "log_normal_")
def _log_normal(ctx: RuleContext, self: Array | None, mean: float = 1.0, std: float = 2.0) -> Array:
    return np.exp(_normal_each(ctx, mean, std))


# --- other continuous distributions ------------------------------------------


@rule("exponential", "exponential_")
def _exponential(ctx: RuleContext, self: Array | None, rate: float = 1.0) -> Array:
    u = open_unit(ctx, ctx.out[0].shape, ctx.out[0].dtype)  # never 0: the draw is finite
    return -np.log(u) / like(u, rate)


@rule("cauchy", "cauchy_")
def _cauchy(ctx: RuleContext, self: Array | None, median: float = 0.0, sigma: float = 1.0) -> Array:
    u = open_unit(ctx, ctx.out[0].shape, "float64")  # float32 has no room near the poles
    return np.tan((u - 0.5) * math.pi) * sigma + median


# --- discrete distributions --------------------------------------------------


@rule("geometric", "geometric_")
def _geometric(ctx: RuleContext, self: Array | None, p: float) -> Array:
    u = open_unit(ctx, ctx.out[0].shape, "float64")
    return np.maximum(np.ceil(np.log(u) / np.log1p(-np.float64(p))), 1)


register_bernoulli(rule, below, below_each)
register_integers(rule, integers)


@rule("randint_like.Tensor", "randint_like.Tensor_generator")
def _randint_like_tensor(
    ctx: RuleContext, self: Array, high: Array, dtype: str | None = None
) -> Array:
    return _bits(ctx, ctx.out[0].shape, 64) % convert(high, "uint64")


@rule("randperm", "randperm.generator")
def _randperm(ctx: RuleContext, n: int, dtype: str | None = None) -> Array:
    # 64-bit keys: among 2**20 of them two are equal with probability 3e-8.
    return np.argsort(_bits(ctx, (n,), 64), kind="stable")


@rule("multinomial")
def _multinomial(
    ctx: RuleContext, self: Array, num_samples: int, replacement: bool = False
) -> Array:
    weights = ctx.widened(self)
    if replacement and num_samples > 1:
        return _with_replacement(ctx, weights)
    # Exponential race: the first arrivals are a sample without replacement (Efraimidis and
    # Spirakis, 2006); a weight of zero never arrives before another.
    race = -np.log(open_unit(ctx, weights.shape, weights.dtype.name))
    return np.argsort(-(weights / race), axis=-1, kind="stable")[..., :num_samples]


def _with_replacement(ctx: RuleContext, weights: Array) -> Array:
    """Inversion of the cumulative weights, clipped to the last category that has any."""
    shape = ctx.out[0].shape
    cumulative = np.cumsum(weights, axis=-1)
    total = cumulative[..., -1:]
    targets = unit(ctx, shape, weights.dtype.name) * total
    last = np.argmax(cumulative >= total, axis=-1)[..., None]
    found = np.sum(cumulative[..., None, :] <= targets[..., None], axis=-1)
    return np.minimum(found, last)


# --- dropout and randomised activations --------------------------------------


@rule("native_dropout")
def _native_dropout(
    ctx: RuleContext, self: Array, p: float, train: bool | None
) -> tuple[Array, Array]:
    if train is False:
        return self, np.ones(self.shape, np.bool_)
    keep = 1.0 - p
    mask = below(ctx, self.shape, keep)
    x = ctx.widened(self)
    # A product, not a selection: a dropped infinity is NaN, as in PyTorch.
    return x * mask.astype(x.dtype) * like(x, 0.0 if keep == 0 else 1.0 / keep), mask


@rule("rrelu_with_noise", "rrelu_with_noise_functional")
def _rrelu(
    ctx: RuleContext,
    self: Array,
    noise: Array,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
) -> tuple[Array, Array]:
    """Returns the result and the noise that it was made with (the operand it overwrites)."""
    x = ctx.widened(self)
    if not training:
        return np.where(x <= 0, x * like(x, (lower + upper) / 2), x), noise
    u = unit(ctx, x.shape, ctx.out[0].dtype)
    slopes = u * like(u, upper - lower) + like(u, lower)
    drawn = np.where(x <= 0, slopes, 1)
    return x * drawn, drawn
