"""XLA's arithmetic of PyTorch's fused optimizer steps.

The formulas follow aten/src/ATen/native/cpu/Fused{Adam,SGD,Adagrad}Kernel.cpp.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fuse.backends.fused_optimizers import Arrays, FusedOptimizers
from fuse.backends.xla.rules.registry import RuleContext, rule

Array = jax.Array


def _descent(grad: Array, parameter: Array, maximize: bool, weight_decay: float) -> Array:
    """The direction to go against, weight decay being part of the gradient."""
    value = -grad if maximize else grad
    return value if weight_decay == 0 else value + parameter * weight_decay


def _unscaled(grad: Array, scale: Array | None) -> Array:
    return grad if scale is None else (grad / scale).astype(grad.dtype)


def _kept(new: Array, old: Array, found_inf: Array | None) -> Array:
    new = new.astype(old.dtype)
    return new if found_inf is None else jnp.where(found_inf.reshape(()) == 1, old, new)


def _adam(
    ctx: RuleContext,
    decoupled: bool,
    values: Arrays,
    step: Array,
    *,
    lr: Any,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> Arrays:
    parameter, grad, average, square, *largest = values
    value = _descent(grad, parameter, maximize, 0 if decoupled else weight_decay)
    if decoupled:
        parameter = parameter * (1 - lr * weight_decay)
    average = average + (1 - beta1) * (value - average)
    square = beta2 * square + (1 - beta2) * value * value
    largest = [jnp.maximum(one, square) for one in largest]
    count = step.astype(jnp.float64)
    root = jnp.sqrt(1 - beta2**count).astype(square.dtype)
    size = (lr / (1 - beta1**count)).astype(parameter.dtype)
    denominator = jnp.sqrt([square, *largest][-1]) / root + eps
    return parameter - size * average / denominator, average, square, *largest


def _sgd(
    ctx: RuleContext,
    values: Arrays,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
) -> Arrays:
    parameter, grad, *buffers = values
    value = _descent(grad, parameter, maximize, weight_decay)
    lr = jnp.asarray(lr, parameter.dtype)
    if not buffers:
        return (parameter - lr * value,)
    buffer = value if is_first_step else momentum * buffers[0] + (1 - dampening) * value
    value = value + momentum * buffer if nesterov else buffer
    return parameter - lr * value, buffer


def _adagrad(
    ctx: RuleContext,
    values: Arrays,
    step: Array,
    *,
    lr: Any,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> Arrays:
    parameter, grad, total = values
    value = _descent(grad, parameter, maximize, weight_decay)
    total = total + value * value
    rate = (lr / (1 + (step.astype(jnp.float64) - 1) * lr_decay)).astype(parameter.dtype)
    return parameter - rate * value / (jnp.sqrt(total) + eps), total


FusedOptimizers(_unscaled, _kept, _adam, _sgd, _adagrad).register(rule)
