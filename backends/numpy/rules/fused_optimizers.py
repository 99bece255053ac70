"""NumPy's arithmetic of PyTorch's fused optimizer steps.

The formulas follow aten/src/ATen/native/cpu/Fused{Adam,SGD,Adagrad}Kernel.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuse.backends.fused_optimizers import FusedOptimizers
from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray


def _descent(grad: Array, parameter: Array, maximize: bool, weight_decay: float) -> Array:
    """The direction to go against, weight decay being part of the gradient."""
    value = -grad if maximize else grad
    return value if weight_decay == 0 else value + parameter * weight_decay


def _unscaled(grad: Array, scale: Array | None) -> Array:
    return grad if scale is None else convert(grad / scale, grad.dtype.name)


def _kept(new: Array, old: Array, found_inf: Array | None) -> Array:
    if found_inf is not None and found_inf.item() == 1:
        return old
    return convert(new, old.dtype.name)


def _adam(
    ctx: RuleContext,
    decoupled: bool,
    values: Sequence[Array],
    step: Array,
    *,
    lr: Array | float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> Sequence[Array]:
    parameter, value, average, square, *largest = map(ctx.widened, values)
    count, lr = float(step.item()), float(lr)
    value = -value if maximize else value
    if decoupled:
        parameter = parameter * (1 - lr * weight_decay)
    elif weight_decay != 0:
        value = value + parameter * weight_decay
    average = average + (1 - beta1) * (value - average)
    square = beta2 * square + (1 - beta2) * value * value
    largest = [np.maximum(one, square) for one in largest]
    denominator = np.sqrt([square, *largest][-1]) / (1 - beta2**count) ** 0.5 + eps
    moved = parameter - lr / (1 - beta1**count) * average / denominator
    return moved, average, square, *largest


def _sgd(
    ctx: RuleContext,
    values: Sequence[Array],
    *,
    weight_decay: float,
    momentum: float,
    lr: Array | float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
) -> Sequence[Array]:
    parameter, grad, *buffers = map(ctx.widened, values)
    value = _descent(grad, parameter, maximize, weight_decay)
    if not buffers:
        return (parameter - float(lr) * value,)
    buffer = value if is_first_step else momentum * buffers[0] + (1 - dampening) * value
    value = value + momentum * buffer if nesterov else buffer
    return parameter - float(lr) * value, buffer


def _adagrad(
    ctx: RuleContext,
    values: Sequence[Array],
    step: Array,
    *,
    lr: Array | float,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> Sequence[Array]:
    parameter, grad, total = map(ctx.widened, values)
    value = _descent(grad, parameter, maximize, weight_decay)
    total = total + value * value
    rate = float(lr) / (1 + (float(step.item()) - 1) * lr_decay)
    return parameter - rate * value / (np.sqrt(total) + eps), total


def _counted(ctx: RuleContext, steps: Sequence[Array], **numbers: object) -> Sequence[Array]:
    return steps


FusedOptimizers(_unscaled, _kept, _adam, _sgd, _adagrad, _counted).register(rule)
