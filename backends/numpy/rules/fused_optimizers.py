"""NumPy rules of PyTorch's fused optimizer steps, each over lists of parameters.

The formulas follow aten/src/ATen/native/cpu/Fused{Adam,SGD,Adagrad}Kernel.cpp. Gradients are
among the results because unscaling writes them back; where ``found_inf`` is 1 nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.registry import Rule, RuleContext, rule

Arrays = Sequence[np.ndarray]
Lists = tuple[list[np.ndarray], ...]


def _gradients(
    ctx: RuleContext, grads: Arrays, scale: np.ndarray | None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The gradients divided by the scale: in their own dtypes, and widened to compute with."""
    unscaled = [g if scale is None else convert(g / scale, g.dtype.name) for g in grads]
    return unscaled, [ctx.widened(g) for g in unscaled]


def _descent(
    grad: np.ndarray, parameter: np.ndarray, maximize: bool, weight_decay: float
) -> np.ndarray:
    """The direction to go against, weight decay being part of the gradient."""
    value = -grad if maximize else grad
    return value if weight_decay == 0 else value + parameter * weight_decay


def _settled(new: Lists, old: tuple[Arrays, ...], found_inf: np.ndarray | None) -> Lists:
    """The new values in the old ones' dtypes, or the old ones where gradients overflowed."""
    if found_inf is not None and found_inf.item() == 1:
        return tuple(list(values) for values in old)
    return tuple(
        [convert(a, b.dtype.name) for a, b in zip(values, before, strict=True)]
        for values, before in zip(new, old, strict=True)
    )


def _adam_step(
    decoupled: bool,
    values: Sequence[np.ndarray],
    step: float,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
) -> tuple[np.ndarray, ...]:
    """New parameter, averages and maximum of (parameter, gradient, averages, maximum)."""
    parameter, value, average, square, *largest = values
    if decoupled:
        parameter = parameter * (1 - lr * weight_decay)
    elif weight_decay != 0:
        value = value + parameter * weight_decay
    average = average + (1 - beta1) * (value - average)
    square = beta2 * square + (1 - beta2) * value * value
    largest = [np.maximum(one, square) for one in largest]
    denominator = np.sqrt([square, *largest][-1]) / (1 - beta2**step) ** 0.5 + eps
    moved = parameter - lr / (1 - beta1**step) * average / denominator
    return moved, average, square, *largest


def _adam(decoupled: bool) -> Rule:
    def define(
        ctx: RuleContext,
        parameters: Arrays,
        grads: Arrays,
        averages: Arrays,
        squares: Arrays,
        maxima: Arrays,
        steps: Arrays,
        *,
        lr: Any,
        amsgrad: bool,
        maximize: bool,
        grad_scale: np.ndarray | None = None,
        found_inf: np.ndarray | None = None,
        **numbers: float,
    ) -> Lists:
        unscaled, wide = _gradients(ctx, grads, grad_scale)
        values = [-grad if maximize else grad for grad in wide]
        state = (averages, squares, maxima) if amsgrad else (averages, squares)
        made = [
            _adam_step(
                decoupled, [ctx.widened(v) for v in each], float(step.item()), float(lr), **numbers
            )
            for step, *each in zip(steps, parameters, values, *state, strict=True)
        ]
        moved, *kept = ([one[k] for one in made] for k in range(1 + len(state)))
        new: Lists = (moved, unscaled, *kept, *([] if amsgrad else [list(maxima)]))
        return _settled(new, (parameters, grads, averages, squares, maxima), found_inf)

    return define


rule("_fused_adam", "_fused_adam.tensor_lr")(_adam(decoupled=False))
rule("_fused_adamw", "_fused_adamw.tensor_lr")(_adam(decoupled=True))


@rule("_fused_sgd", "_fused_sgd.tensor_lr")
def _sgd(
    ctx: RuleContext,
    parameters: Arrays,
    grads: Arrays,
    momenta: Arrays,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: np.ndarray | None = None,
    found_inf: np.ndarray | None = None,
) -> Lists:
    unscaled, wide = _gradients(ctx, grads, grad_scale)
    made: Lists = ([], unscaled, [] if momentum != 0 else list(momenta))
    for index, grad in enumerate(wide):
        parameter = ctx.widened(parameters[index])
        value = _descent(grad, parameter, maximize, weight_decay)
        if momentum != 0:
            before = ctx.widened(momenta[index])
            buffer = value if is_first_step else momentum * before + (1 - dampening) * value
            value = value + momentum * buffer if nesterov else buffer
            made[2].append(buffer)
        made[0].append(parameter - float(lr) * value)
    return _settled(made, (parameters, grads, momenta), found_inf)


def _adagrad(keeps_steps: bool) -> Callable[..., Lists]:
    def define(
        ctx: RuleContext,
        parameters: Arrays,
        grads: Arrays,
        sums: Arrays,
        steps: Arrays,
        *,
        lr: Any,
        lr_decay: float,
        weight_decay: float,
        eps: float,
        maximize: bool,
        grad_scale: np.ndarray | None = None,
        found_inf: np.ndarray | None = None,
    ) -> Lists:
        unscaled, wide = _gradients(ctx, grads, grad_scale)
        made: Lists = ([], unscaled, [])
        for index, grad in enumerate(wide):
            parameter = ctx.widened(parameters[index])
            value = _descent(grad, parameter, maximize, weight_decay)
            total = ctx.widened(sums[index]) + value * value
            rate = float(lr) / (1 + (float(steps[index].item()) - 1) * lr_decay)
            made[0].append(parameter - rate * value / (np.sqrt(total) + eps))
            made[2].append(total)
        settled = _settled(made, (parameters, grads, sums), found_inf)
        # The schema calls the steps written too; the kernel only reads them.
        return (*settled, list(steps)) if keeps_steps else settled

    return define


rule("_fused_adagrad")(_adagrad(keeps_steps=True))
rule("_fused_adagrad.tensor_lr")(_adagrad(keeps_steps=False))
