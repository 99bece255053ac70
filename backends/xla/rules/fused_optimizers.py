"""XLA's arithmetic of PyTorch's fused optimizer steps.

The formulas follow aten/src/ATen/native/cpu/Fused{Adam,SGD,Adagrad}Kernel.cpp. What they make of
numbers alone (``1 - beta ** step``) is computed in float64, as there, and then rounded; so a
schedule's numbers give what the same constants would.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fuse.backends.fused_optimizers import FusedOptimizers, is_zero
from fuse.backends.xla.rules.elementwise import is_number, like
from fuse.backends.xla.rules.registry import Number, RuleContext, rule

Array = jax.Array


def _descent(grad: Array, parameter: Array, maximize: bool, weight_decay: Number) -> Array:
    """The direction to go against, weight decay being part of the gradient."""
    value = -grad if maximize else grad
    if is_zero(weight_decay):
        return value
    decayed = value + parameter * like(parameter, weight_decay)
    # Of a parameter that is not finite, 0 times it would be NaN.
    return decayed if is_number(weight_decay) else jnp.where(weight_decay == 0, value, decayed)


def _unscaled(grad: Array, scale: Array | None) -> Array:
    return grad if scale is None else (grad / scale).astype(grad.dtype)


def _kept(new: Array, old: Array, found_inf: Array | None) -> Array:
    new = new.astype(old.dtype)
    return new if found_inf is None else jnp.where(found_inf.reshape(()) == 1, old, new)


def _counted(
    ctx: RuleContext, steps: Sequence[Array], *, lr: Number, beta1: Number, beta2: Number, **_: Any
) -> list[tuple[Array, Array]]:
    """Of each step the size of a move, and the root that corrects the average of squares.

    Off the CPU platform all steps at once: a TPU computes a power in float64 by some hundred
    operations, which for each of 300 parameters were most of the program.
    """
    if ctx.platform.name == "cpu":
        return [_corrections(step, lr, beta1, beta2) for step in steps]
    sizes, roots = _corrections(jnp.stack(steps).reshape(len(steps)), lr, beta1, beta2)
    return [(sizes[at], roots[at]) for at in range(len(steps))]


def _corrections(step: Array, lr: Number, beta1: Number, beta2: Number) -> tuple[Array, Array]:
    count = step.astype(jnp.float64)
    return lr / (1 - beta1**count), jnp.sqrt(1 - beta2**count)


def _adam(
    ctx: RuleContext,
    decoupled: bool,
    values: Sequence[Array],
    counted: tuple[Array, Array],
    *,
    lr: Number,
    beta1: Number,
    beta2: Number,
    weight_decay: Number,
    eps: Number,
    maximize: bool,
) -> Sequence[Array]:
    parameter, grad, average, square, *largest = values
    value = _descent(grad, parameter, maximize, 0 if decoupled else weight_decay)
    if decoupled:
        parameter = parameter * like(parameter, 1 - lr * weight_decay)
    average = average + like(average, 1 - beta1) * (value - average)
    square = like(square, beta2) * square + like(square, 1 - beta2) * value * value
    largest = [jnp.maximum(one, square) for one in largest]
    size, root = counted[0].astype(parameter.dtype), counted[1].astype(square.dtype)
    denominator = jnp.sqrt([square, *largest][-1]) / root + like(square, eps)
    return parameter - size * average / denominator, average, square, *largest


def _sgd(
    ctx: RuleContext,
    values: Sequence[Array],
    *,
    weight_decay: Number,
    momentum: Number,
    lr: Number,
    dampening: Number,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
) -> Sequence[Array]:
    parameter, grad, *buffers = values
    value = _descent(grad, parameter, maximize, weight_decay)
    lr = like(parameter, lr)
    if not buffers:
        return (parameter - lr * value,)
    buffer, kept = value, like(value, momentum)
    if not is_first_step:
        buffer = kept * buffers[0] + like(value, 1 - dampening) * value
    value = value + kept * buffer if nesterov else buffer
    return parameter - lr * value, buffer


def _adagrad(
    ctx: RuleContext,
    values: Sequence[Array],
    step: Array,
    *,
    lr: Number,
    lr_decay: Number,
    weight_decay: Number,
    eps: Number,
    maximize: bool,
) -> Sequence[Array]:
    parameter, grad, total = values
    value = _descent(grad, parameter, maximize, weight_decay)
    total = total + value * value
    rate = (lr / (1 + (step.astype(jnp.float64) - 1) * lr_decay)).astype(parameter.dtype)
    return parameter - rate * value / (jnp.sqrt(total) + like(total, eps)), total


FusedOptimizers(_unscaled, _kept, _adam, _sgd, _adagrad, _counted).register(
    functools.partial(rule, doubles=True)
)
