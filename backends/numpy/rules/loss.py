"""NumPy rules of losses, forward and backward.

``reduction`` is PyTorch's number: 0 none, 1 mean, 2 sum (ATen/core/Reduction.h).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fuse.backends.numpy.rules.elementwise import is_nan, like
from fuse.backends.numpy.rules.reduction import add_up
from fuse.backends.numpy.rules.registry import Rule, RuleContext, rule

Array = np.ndarray
_NONE, _MEAN, _SUM = 0, 1, 2


def _reduced(loss: Array, reduction: int) -> Array:
    """The loss of every element, their mean (NaN of none) or their sum."""
    if reduction == _NONE:
        return loss
    total = add_up(loss, tuple(range(loss.ndim)))
    return total / loss.dtype.type(loss.size) if reduction == _MEAN else total


def _shared(grad: Array, size: int, reduction: int) -> Array:
    """What one of ``size`` elements gets of the loss's gradient."""
    return grad / grad.dtype.type(size) if reduction == _MEAN and size else grad


# --- element-wise losses -------------------------------------------------------------


def _smooth_l1(d: Array, beta: float) -> Array:
    size = np.abs(d)
    return np.where(size < beta, 0.5 * size * size / like(d, beta), size - 0.5 * like(d, beta))


def _smooth_l1_slope(d: Array, beta: float) -> Array:
    # With beta 0 the middle is never taken and d = 0 slopes downwards, as in ATen.
    return np.where(d <= -beta, -1, np.where(d >= beta, 1, d / like(d, beta)))


def _huber(d: Array, delta: float) -> Array:
    size = np.abs(d)
    return np.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta))


def _huber_slope(d: Array, delta: float) -> Array:
    return np.where(d <= -delta, -delta, np.where(d >= delta, delta, d))


def _of_difference(function: Callable[..., Array]) -> Rule:
    def define(
        ctx: RuleContext, x: Array, target: Array, reduction: int = _MEAN, *parameter: float
    ) -> Array:
        x, target = ctx.computed(x, target)
        return _reduced(function(x - target, *parameter), reduction)

    return define


def _slope_of_difference(slope: Callable[..., Array]) -> Rule:
    def define(
        ctx: RuleContext, grad: Array, x: Array, target: Array, reduction: int, *parameter: float
    ) -> Array:
        grad, x, target = ctx.computed(grad, x, target)
        return slope(x - target, *parameter) * _shared(grad, x.size, reduction)

    return define


for _name, _loss, _slope in (
    ("mse_loss", lambda d: d * d, lambda d: 2 * d),
    ("smooth_l1_loss", _smooth_l1, _smooth_l1_slope),
    ("huber_loss", _huber, _huber_slope),
):
    rule(_name)(_of_difference(_loss))
    rule(f"{_name}_backward")(_slope_of_difference(_slope))


@rule("binary_cross_entropy")
def _binary_cross_entropy(
    ctx: RuleContext,
    x: Array,
    target: Array,
    weight: Array | None = None,
    reduction: int = _MEAN,
) -> Array:
    x, target = ctx.computed(x, target)
    # Logarithms are cut at -100, so that a certain mistake costs 100 and not infinity.
    hit, miss = np.maximum(np.log(x), -100), np.maximum(np.log1p(-x), -100)
    loss = (target - 1) * miss - target * hit
    return _reduced(loss if weight is None else loss * weight.astype(loss.dtype), reduction)


@rule("binary_cross_entropy_backward")
def _binary_cross_entropy_backward(
    ctx: RuleContext,
    grad: Array,
    x: Array,
    target: Array,
    weight: Array | None = None,
    reduction: int = _MEAN,
) -> Array:
    grad, x, target = ctx.computed(grad, x, target)
    # 1e-12 is ATen's bound (native/Loss.cpp, EPSILON).
    slope = (x - target) / np.maximum((1 - x) * x, 1e-12)
    slope = slope if weight is None else slope * weight.astype(x.dtype)
    return slope * _shared(grad, x.size, reduction)


@rule("soft_margin_loss")
def _soft_margin(ctx: RuleContext, x: Array, target: Array, reduction: int = _MEAN) -> Array:
    x, target = ctx.computed(x, target)
    return _reduced(np.log1p(np.exp(-target * x)), reduction)


@rule("soft_margin_loss_backward")
def _soft_margin_backward(
    ctx: RuleContext, grad: Array, x: Array, target: Array, reduction: int
) -> Array:
    grad, x, target = ctx.computed(grad, x, target)
    power = np.exp(-target * x)
    return -target * power / (power + 1) * _shared(grad, x.size, reduction)


# --- negative log likelihood ---------------------------------------------------------


def _samples(x: Array, target: Array) -> tuple[int, Array]:
    """The class axis, and targets as int64 (uint8 is allowed too) shaped like x without it."""
    axis = 0 if x.ndim == 1 else 1
    return axis, target.reshape(x.shape[:axis] + x.shape[axis + 1 :]).astype(np.int64)


def _picked(x: Array, target: Array, axis: int) -> Array:
    """``x[target]`` along the class axis; NaN where the target is no class.

    PyTorch raises for a target out of range; a recorded program cannot, and must not give a
    plausible number either.
    """
    classes = x.shape[axis]
    if classes == 0:
        return np.full(target.shape, math.nan, x.dtype)
    index = np.expand_dims(np.clip(target, 0, classes - 1), axis)
    chosen = np.take_along_axis(x, index, axis).squeeze(axis)
    return np.where((target >= 0) & (target < classes), chosen, math.nan)


def _class_weight(weight: Array | None, target: Array, counted: Array, dtype: np.dtype) -> Array:
    """The weight of every sample: that of its class, 0 where the target is ignored."""
    if weight is None:
        return counted.astype(dtype)
    chosen = weight.astype(dtype)[np.clip(target, 0, max(weight.size - 1, 0))]
    return np.where(counted, chosen, 0)


@rule("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(
    ctx: RuleContext,
    x: Array,
    target: Array,
    weight: Array | None,
    reduction: int,
    ignore_index: int,
) -> tuple[Array, Array]:
    x = ctx.widened(x)
    axis, target = _samples(x, target)
    counted = target != ignore_index
    weights = _class_weight(weight, target, counted, x.dtype)
    loss = np.where(counted, -_picked(x, target, axis) * weights, 0)
    every = tuple(range(loss.ndim))
    total, weight_sum = add_up(loss, every), add_up(weights, every)
    if reduction == _NONE:  # a batch leaves the sum of weights at 0, a single sample does not
        sample = weight_sum if x.ndim == 1 else np.zeros((), x.dtype)
        return loss.reshape(ctx.out[0].shape), sample
    return total / weight_sum if reduction == _MEAN else total, weight_sum


@rule("nll_loss_backward", "nll_loss2d_backward")
def _nll_loss_backward(
    ctx: RuleContext,
    grad: Array,
    x: Array,
    target: Array,
    weight: Array | None,
    reduction: int,
    ignore_index: int,
    total_weight: Array,
) -> Array:
    dtype = ctx.widened(x).dtype
    grad = grad.astype(dtype)
    axis, target = _samples(x, target)
    grad = grad / total_weight.astype(dtype) if reduction == _MEAN else grad
    grad = grad.reshape(target.shape) if reduction == _NONE else grad
    counted = target != ignore_index
    slope = -grad * _class_weight(weight, target, counted, dtype)
    classes = np.arange(x.shape[axis]).reshape((-1,) + (1,) * (x.ndim - 1 - axis))
    chosen = (classes == np.expand_dims(target, axis)) & np.expand_dims(counted, axis)
    return np.where(chosen, np.expand_dims(slope, axis), 0)


# --- margins over classes ------------------------------------------------------------


def _rows(value: Array) -> Array:
    """A single sample as a batch of one."""
    return value.reshape(1, -1) if value.ndim < 2 else value


def _margins(
    x: Array, target: Array, margin: float, weight: Array | None
) -> tuple[Array, Array, Array, Array]:
    """Per sample and class: margin, whether it is violated, the sample's weight, the own class."""
    own = np.arange(x.shape[1]) == target[:, None]
    distance = like(x, margin) - _picked(x, target, 1)[:, None] + x
    weights = _class_weight(weight, target, np.ones(target.shape, np.bool_), x.dtype)
    return distance, ((distance > 0) | is_nan(distance)) & ~own, weights[:, None], own


@rule("multi_margin_loss")
def _multi_margin(
    ctx: RuleContext,
    x: Array,
    target: Array,
    p: float = 1,
    margin: float = 1,
    weight: Array | None = None,
    reduction: int = _MEAN,
) -> Array:
    rows = _rows(ctx.widened(x))
    distance, counts, weights, _ = _margins(rows, target.reshape(-1), margin, weight)
    cost = np.where(counts, distance**p * weights, 0)
    cost = add_up(cost, (1,)) / rows.dtype.type(rows.shape[1])
    return _reduced(cost, reduction).reshape(ctx.out[0].shape)


@rule("multi_margin_loss_backward")
def _multi_margin_backward(
    ctx: RuleContext,
    grad: Array,
    x: Array,
    target: Array,
    p: float,
    margin: float,
    weight: Array | None = None,
    reduction: int = _MEAN,
) -> Array:
    rows = _rows(ctx.widened(x))
    distance, counts, weights, own = _margins(rows, target.reshape(-1), margin, weight)
    slope = weights if p == 1 else 2 * distance * weights
    slope = np.where(counts, slope / rows.dtype.type(rows.shape[1]), 0)
    slope = np.where(own, -add_up(slope, (1,), keepdims=True), slope)
    grad = _shared(grad.astype(rows.dtype), rows.shape[0], reduction)
    return (slope * grad.reshape(-1, 1)).reshape(x.shape)


def _label_set(target: Array, classes: int) -> tuple[Array, Array]:
    """[N, K, C] one-hot of every label before a row's first -1, and [N, C] whether it is one."""
    ended = np.logical_or.accumulate(target < 0, axis=1)
    hot = (np.arange(classes) == target[..., None]) & ~ended[..., None]
    return hot, hot.any(axis=1)


def _violations(x: Array, hot: Array, is_target: Array) -> Array:
    """[N, K, C]: 1 - x[label k] + x[class c] where it is positive and c is no label, else 0."""
    label = add_up(np.where(hot, x[:, None, :], 0), (2,), keepdims=True)
    live = hot.any(axis=2, keepdims=True) & ~is_target[:, None, :]
    distance = 1 - label + x[:, None, :]
    return np.where(live & (distance > 0), distance, 0)


@rule("multilabel_margin_loss_forward")
def _multilabel_margin(
    ctx: RuleContext, x: Array, target: Array, reduction: int
) -> tuple[Array, Array]:
    rows = _rows(ctx.widened(x))
    hot, is_target = _label_set(_rows(target), rows.shape[1])
    cost = add_up(_violations(rows, hot, is_target), (1, 2)) / rows.dtype.type(rows.shape[1])
    return _reduced(cost, reduction).reshape(ctx.out[0].shape), is_target.reshape(target.shape)


@rule("multilabel_margin_loss_backward")
def _multilabel_margin_backward(
    ctx: RuleContext, grad: Array, x: Array, target: Array, reduction: int, is_target: Array
) -> Array:
    rows = _rows(ctx.widened(x))
    hot, members = _label_set(_rows(target), rows.shape[1])
    active = (_violations(rows, hot, members) > 0).astype(rows.dtype)
    slope = add_up(active - hot * add_up(active, (2,), keepdims=True), (1,))
    grad = _shared(grad.astype(rows.dtype), rows.shape[0], reduction)
    return (slope / rows.dtype.type(rows.shape[1]) * grad.reshape(-1, 1)).reshape(x.shape)
