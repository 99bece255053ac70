"""XLA rules of losses, forward and backward.

``reduction`` is PyTorch's number: 0 none, 1 mean, 2 sum (ATen/core/Reduction.h).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from fuse.backends.xla.rules.reduction import is_nan, kept, number
from fuse.backends.xla.rules.registry import Number, Rule, RuleContext, rule

_NONE, _MEAN, _SUM = 0, 1, 2


def _reduced(loss: jax.Array, reduction: int) -> jax.Array:
    """The loss of every element, their mean (NaN of none) or their sum."""
    if reduction == _NONE:
        return loss
    total = lax.reduce_sum(loss, tuple(range(loss.ndim)))
    return total / number(loss.size, loss.dtype) if reduction == _MEAN else total


def _shared(grad: jax.Array, size: int, reduction: int) -> jax.Array:
    """What one of ``size`` elements gets of the loss's gradient."""
    return grad / number(size, grad.dtype) if reduction == _MEAN and size else grad


# --- element-wise losses -------------------------------------------------------------


def _square(d: jax.Array) -> jax.Array:
    return d * d


def _square_slope(d: jax.Array) -> jax.Array:
    return d + d


def _smooth_l1(d: jax.Array, beta: jax.Array) -> jax.Array:
    size, half = lax.abs(d), number(0.5, d.dtype)
    return jnp.where(size < beta, half * size * size / beta, size - half * beta)


def _smooth_l1_slope(d: jax.Array, beta: jax.Array) -> jax.Array:
    # With beta 0 the middle is never taken and d = 0 slopes downwards, as in ATen.
    one = jnp.ones((), d.dtype)
    return jnp.where(d <= -beta, -one, jnp.where(d >= beta, one, d / beta))


def _huber(d: jax.Array, delta: jax.Array) -> jax.Array:
    size, half = lax.abs(d), number(0.5, d.dtype)
    return jnp.where(size <= delta, half * size * size, delta * (size - half * delta))


def _huber_slope(d: jax.Array, delta: jax.Array) -> jax.Array:
    return jnp.where(d <= -delta, -delta, jnp.where(d >= delta, delta, d))


def _of_difference(function: Callable[..., jax.Array]) -> Rule:
    def emit(
        ctx: RuleContext,
        x: jax.Array,
        target: jax.Array,
        reduction: int = _MEAN,
        *parameter: Number,
    ) -> jax.Array:
        x, target = ctx.computed(x, target)
        loss = function(x - target, *(number(p, x.dtype) for p in parameter))
        return _reduced(loss, reduction)

    return emit


def _slope_of_difference(slope: Callable[..., jax.Array]) -> Rule:
    def emit(
        ctx: RuleContext,
        grad: jax.Array,
        x: jax.Array,
        target: jax.Array,
        reduction: int,
        *parameter: Number,
    ) -> jax.Array:
        grad, x, target = ctx.computed(grad, x, target)
        step = slope(x - target, *(number(p, x.dtype) for p in parameter))
        return step * _shared(grad, x.size, reduction)

    return emit


for _name, _loss, _slope in (
    ("mse_loss", _square, _square_slope),
    ("smooth_l1_loss", _smooth_l1, _smooth_l1_slope),
    ("huber_loss", _huber, _huber_slope),
):
    rule(_name)(_of_difference(_loss))
    rule(f"{_name}_backward")(_slope_of_difference(_slope))


@rule("binary_cross_entropy")
def _binary_cross_entropy(
    ctx: RuleContext,
    x: jax.Array,
    target: jax.Array,
    weight: jax.Array | None = None,
    reduction: int = _MEAN,
) -> jax.Array:
    x, target = ctx.computed(x, target)
    # Logarithms are cut at -100, so that a certain mistake costs 100 and not infinity.
    floor = number(-100, x.dtype)
    hit, miss = lax.max(lax.log(x), floor), lax.max(lax.log1p(-x), floor)
    loss = (target - 1) * miss - target * hit
    return _reduced(loss if weight is None else loss * weight.astype(loss.dtype), reduction)


@rule("binary_cross_entropy_backward")
def _binary_cross_entropy_backward(
    ctx: RuleContext,
    grad: jax.Array,
    x: jax.Array,
    target: jax.Array,
    weight: jax.Array | None = None,
    reduction: int = _MEAN,
) -> jax.Array:
    grad, x, target = ctx.computed(grad, x, target)
    # 1e-12 is ATen's bound (native/Loss.cpp, EPSILON).
    slope = (x - target) / lax.max((1 - x) * x, number(1e-12, x.dtype))
    slope = slope if weight is None else slope * weight.astype(x.dtype)
    return slope * _shared(grad, x.size, reduction)


@rule("soft_margin_loss")
def _soft_margin(
    ctx: RuleContext, x: jax.Array, target: jax.Array, reduction: int = _MEAN
) -> jax.Array:
    x, target = ctx.computed(x, target)
    return _reduced(lax.log1p(lax.exp(-target * x)), reduction)


@rule("soft_margin_loss_backward")
def _soft_margin_backward(
    ctx: RuleContext, grad: jax.Array, x: jax.Array, target: jax.Array, reduction: int
) -> jax.Array:
    grad, x, target = ctx.computed(grad, x, target)
    power = lax.exp(-target * x)
    return -target * power / (power + 1) * _shared(grad, x.size, reduction)


# --- negative log likelihood ---------------------------------------------------------


def _class_axis(x: jax.Array) -> int:
    return 0 if x.ndim == 1 else 1


def _spread(value: jax.Array, axis: int) -> jax.Array:
    """A value for every sample, with the class axis put in at size 1."""
    return lax.expand_dims(value, (axis,))


def _is_class(target: jax.Array, classes: int) -> jax.Array:
    return (target >= 0) & (target < classes)


def _samples(x: jax.Array, target: jax.Array) -> jax.Array:
    """Targets as int64 (uint8 is allowed too), in the shape of ``x`` without its class axis."""
    axis = _class_axis(x)
    return target.reshape(x.shape[:axis] + x.shape[axis + 1 :]).astype(jnp.int64)


def _picked(ctx: RuleContext, x: jax.Array, target: jax.Array, axis: int) -> jax.Array:
    """``x[target]`` along the class axis; NaN where the target is no class.

    A gather of one element a sample: on CPU 1.2 to 7 times faster than a comparison with
    every class and a reduction. On a TPU that is the faster one: it is fused with what makes
    ``x``, and a gather is not. PyTorch raises for a target out of range; a compiled
    program cannot, and must not give a plausible number either.
    """
    if ctx.platform.name == "tpu":
        place = jnp.where(_is_class(target, x.shape[axis]), target, -1).astype(jnp.int32)
        own = lax.broadcasted_iota(jnp.int32, x.shape, axis) == _spread(place, axis)
        found = jnp.sum(jnp.where(own, x, jnp.zeros((), x.dtype)), axis)
        return jnp.where(place >= 0, found, number(jnp.nan, x.dtype))
    index = _spread(target, axis)
    chosen = jnp.take_along_axis(x, index, axis, mode="clip").reshape(target.shape)
    return jnp.where(_is_class(target, x.shape[axis]), chosen, number(jnp.nan, x.dtype))


def _class_weight(
    weight: jax.Array | None, target: jax.Array, counted: jax.Array, dtype: DTypeLike
) -> jax.Array:
    """The weight of every sample: that of its class, 0 where the target is ignored."""
    if weight is None:
        return counted.astype(dtype)
    chosen = jnp.take(weight.astype(dtype), target, mode="clip")
    return jnp.where(counted, chosen, jnp.zeros((), dtype))


def _place(target: jax.Array, counted: jax.Array, classes: int) -> jax.Array:
    """The class of each sample, -1 for none; it fits 32 bits, which compare twice as fast."""
    return jnp.where(counted & _is_class(target, classes), target, -1).astype(jnp.int32)


def _nll_loss_at_once(
    x: jax.Array, target: jax.Array, counted: jax.Array, axis: int, reduction: int
) -> tuple[jax.Array, jax.Array]:
    """The loss and how many samples count, both NaN where a target is no class.

    One reduction over all of ``x``: on a TPU every loop costs as much as this whole one.
    """
    place = _place(target, counted, x.shape[axis])
    own = lax.broadcasted_iota(jnp.int32, x.shape, axis) == _spread(place, axis)
    total = -jnp.sum(jnp.where(own, x, jnp.zeros((), x.dtype)))
    lost = counted & (place < 0)
    number_counted = jnp.sum(jnp.where(lost, jnp.nan, counted.astype(x.dtype)))
    if reduction == _MEAN:
        return total / number_counted, number_counted
    return jnp.where(is_nan(number_counted), number_counted, total), number_counted


@rule("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(
    ctx: RuleContext,
    x: jax.Array,
    target: jax.Array,
    weight: jax.Array | None,
    reduction: int,
    ignore_index: int,
) -> tuple[jax.Array, jax.Array]:
    x = ctx.widened(x)
    axis = _class_axis(x)
    target = _samples(x, target)
    counted = target != ignore_index
    if ctx.platform.name == "tpu" and weight is None and reduction != _NONE:
        return _nll_loss_at_once(x, target, counted, axis, reduction)
    weights = _class_weight(weight, target, counted, x.dtype)
    zero = jnp.zeros((), x.dtype)
    loss = jnp.where(counted, -_picked(ctx, x, target, axis) * weights, zero)
    every = tuple(range(loss.ndim))
    total, weight_sum = lax.reduce_sum(loss, every), lax.reduce_sum(weights, every)
    if reduction == _NONE:  # a batch leaves the sum of weights at 0, a single sample does not
        return loss.reshape(ctx.out[0].shape), zero if x.ndim > 1 else weight_sum
    return total / weight_sum if reduction == _MEAN else total, weight_sum


@rule("nll_loss_backward", "nll_loss2d_backward")
def _nll_loss_backward(
    ctx: RuleContext,
    grad: jax.Array,
    x: jax.Array,
    target: jax.Array,
    weight: jax.Array | None,
    reduction: int,
    ignore_index: int,
    total_weight: jax.Array,
) -> jax.Array:
    dtype = ctx.widened(x).dtype
    grad, total_weight = grad.astype(dtype), total_weight.astype(dtype)
    axis = _class_axis(x)
    target = _samples(x, target)
    grad = grad / total_weight if reduction == _MEAN else grad
    grad = grad.reshape(target.shape) if reduction == _NONE else grad
    counted = target != ignore_index
    slope = -grad if weight is None else -grad * _class_weight(weight, target, counted, dtype)
    slope = jnp.broadcast_to(slope, target.shape)
    place = _place(target, counted, x.shape[axis])
    chosen = lax.broadcasted_iota(jnp.int32, x.shape, axis) == _spread(place, axis)
    return jnp.where(chosen, _spread(slope, axis), jnp.zeros((), dtype))


# --- margins over classes ------------------------------------------------------------


def _rows(*values: jax.Array) -> list[jax.Array]:
    """A single sample as a batch of one."""
    return [value.reshape(1, -1) if value.ndim < 2 else value for value in values]


def _margins(
    ctx: RuleContext, x: jax.Array, target: jax.Array, margin: Number, weight: jax.Array | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Per sample and class: the violated margin, whether it counts, the sample's weight."""
    chosen = _picked(ctx, x, target, 1)
    distance = number(margin, x.dtype) - _spread(chosen, 1) + x
    own = lax.broadcasted_iota(target.dtype, x.shape, 1) == _spread(target, 1)
    weights = (
        jnp.ones_like(chosen)
        if weight is None
        else _class_weight(weight, target, jnp.ones(target.shape, jnp.bool_), x.dtype)
    )
    return distance, ((distance > 0) | is_nan(distance)) & ~own, _spread(weights, 1)


@rule("multi_margin_loss", static=("p",))
def _multi_margin(
    ctx: RuleContext,
    x: jax.Array,
    target: jax.Array,
    p: Number = 1,
    margin: Number = 1,
    weight: jax.Array | None = None,
    reduction: int = _MEAN,
) -> jax.Array:
    rows = _rows(ctx.widened(x))[0]
    distance, counts, weights = _margins(ctx, rows, target.reshape(-1), margin, weight)
    cost = (distance if p == 1 else distance * distance) * weights
    cost = lax.reduce_sum(jnp.where(counts, cost, jnp.zeros((), cost.dtype)), (1,))
    return _reduced(cost / number(rows.shape[1], cost.dtype), reduction).reshape(ctx.out[0].shape)


@rule("multi_margin_loss_backward", static=("p",))
def _multi_margin_backward(
    ctx: RuleContext,
    grad: jax.Array,
    x: jax.Array,
    target: jax.Array,
    p: Number,
    margin: Number,
    weight: jax.Array | None = None,
    reduction: int = _MEAN,
) -> jax.Array:
    rows = _rows(ctx.widened(x))[0]
    target = target.reshape(-1)
    distance, counts, weights = _margins(ctx, rows, target, margin, weight)
    slope = weights if p == 1 else 2 * distance * weights
    slope = jnp.where(counts, slope / number(rows.shape[1], rows.dtype), jnp.zeros((), rows.dtype))
    own = lax.broadcasted_iota(target.dtype, rows.shape, 1) == _spread(target, 1)
    slope = jnp.where(own, -kept(slope, lax.reduce_sum(slope, (1,)), (1,)), slope)
    grad = _shared(grad.astype(rows.dtype), rows.shape[0], reduction)
    return (slope * grad.reshape(-1, 1)).reshape(x.shape)


def _label_set(target: jax.Array, classes: int) -> tuple[jax.Array, jax.Array]:
    """[N, K, C] one-hot of every label before a row's first -1, and [N, C] whether it is one."""
    ended = lax.cummax((target < 0).astype(jnp.int32), axis=1) > 0
    shape = (*target.shape, classes)
    hot = (lax.broadcasted_iota(target.dtype, shape, 2) == target[..., None]) & ~ended[..., None]
    return hot, lax.reduce_or(hot, (1,))


def _violations(x: jax.Array, hot: jax.Array, is_target: jax.Array) -> jax.Array:
    """[N, K, C]: 1 - x[label k] + x[class c] where it is positive and c is no label, else 0."""
    label = lax.reduce_sum(jnp.where(hot, x[:, None, :], jnp.zeros((), x.dtype)), (2,))
    live = lax.reduce_or(hot, (2,))[..., None] & ~is_target[:, None, :]
    distance = 1 - label[..., None] + x[:, None, :]
    return jnp.where(live & (distance > 0), distance, jnp.zeros((), x.dtype))


@rule("multilabel_margin_loss_forward")
def _multilabel_margin(
    ctx: RuleContext, x: jax.Array, target: jax.Array, reduction: int
) -> tuple[jax.Array, jax.Array]:
    rows, labels = _rows(ctx.widened(x), target)
    hot, is_target = _label_set(labels, rows.shape[1])
    cost = lax.reduce_sum(_violations(rows, hot, is_target), (1, 2))
    loss = _reduced(cost / number(rows.shape[1], rows.dtype), reduction)
    return loss.reshape(ctx.out[0].shape), is_target.astype(x.dtype).reshape(target.shape)


@rule("multilabel_margin_loss_backward")
def _multilabel_margin_backward(
    ctx: RuleContext,
    grad: jax.Array,
    x: jax.Array,
    target: jax.Array,
    reduction: int,
    is_target: jax.Array,
) -> jax.Array:
    rows, labels = _rows(ctx.widened(x), target)
    hot, members = _label_set(labels, rows.shape[1])
    active = (_violations(rows, hot, members) > 0).astype(rows.dtype)
    per_label = lax.reduce_sum(active, (2,))[..., None]
    slope = lax.reduce_sum(active - hot.astype(rows.dtype) * per_label, (1,))
    slope = slope / number(rows.shape[1], rows.dtype)
    grad = _shared(grad.astype(rows.dtype), rows.shape[0], reduction)
    return (slope * grad.reshape(-1, 1)).reshape(x.shape)
