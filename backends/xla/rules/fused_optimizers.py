"""XLA rules of PyTorch's fused optimizer steps, each over lists of parameters.

The formulas follow aten/src/ATen/native/cpu/Fused{Adam,SGD,Adagrad}Kernel.cpp. Gradients are
among the results because unscaling writes them back; where ``found_inf`` is 1 nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fuse.backends.xla.rules.registry import Rule, RuleContext, rule

Arrays = Sequence[jax.Array]
Lists = tuple[list[jax.Array], ...]


def _unscaled(grad: jax.Array, scale: jax.Array | None) -> jax.Array:
    return grad if scale is None else (grad / scale).astype(grad.dtype)


def _descent(
    grad: jax.Array, parameter: jax.Array, maximize: bool, weight_decay: float
) -> jax.Array:
    """The direction to go against, weight decay being part of the gradient."""
    value = -grad if maximize else grad
    return value if weight_decay == 0 else value + parameter * weight_decay


def _kept(new: jax.Array, old: jax.Array, found_inf: jax.Array | None) -> jax.Array:
    """``new`` in the dtype of ``old``, unless the gradients overflowed."""
    new = new.astype(old.dtype)
    return new if found_inf is None else jnp.where(found_inf.reshape(()) == 1, old, new)


def _settled(new: Lists, old: tuple[Arrays, ...], found_inf: jax.Array | None) -> Lists:
    return tuple(
        [_kept(a, b, found_inf) for a, b in zip(one, other, strict=True)]
        for one, other in zip(new, old, strict=True)
    )


def _adam(decoupled: bool) -> Rule:
    def emit(
        ctx: RuleContext,
        parameters: Arrays,
        grads: Arrays,
        averages: Arrays,
        squares: Arrays,
        maxima: Arrays,
        steps: Arrays,
        *,
        lr: Any,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: jax.Array | None = None,
        found_inf: jax.Array | None = None,
    ) -> Lists:
        made: Lists = ([], [], [], [], [])
        for index, parameter in enumerate(parameters):
            grad = _unscaled(grads[index], grad_scale)
            value = _descent(grad, parameter, maximize, 0 if decoupled else weight_decay)
            if decoupled:
                parameter = parameter * (1 - lr * weight_decay)
            average = averages[index] + (1 - beta1) * (value - averages[index])
            square = beta2 * squares[index] + (1 - beta2) * value * value
            largest = jnp.maximum(maxima[index], square) if amsgrad else square
            step = steps[index].astype(jnp.float64)
            root = jnp.sqrt(1 - beta2**step).astype(square.dtype)
            size = (lr / (1 - beta1**step)).astype(parameter.dtype)
            denominator = jnp.sqrt(largest) / root + eps
            made[0].append(parameter - size * average / denominator)
            made[1].append(grad)
            made[2].append(average)
            made[3].append(square)
            if amsgrad:
                made[4].append(largest)
        if not amsgrad:
            made[4].extend(maxima)
        old = (parameters, grads, averages, squares, maxima)
        return _settled(made, old, found_inf)

    return emit


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
    grad_scale: jax.Array | None = None,
    found_inf: jax.Array | None = None,
) -> Lists:
    made: Lists = ([], [], [])
    for index, parameter in enumerate(parameters):
        grad = _unscaled(grads[index], grad_scale)
        value = _descent(grad, parameter, maximize, weight_decay)
        if momentum != 0:
            before = momenta[index]
            buffer = value if is_first_step else momentum * before + (1 - dampening) * value
            value = value + momentum * buffer if nesterov else buffer
            made[2].append(buffer)
        made[0].append(parameter - jnp.asarray(lr, parameter.dtype) * value)
        made[1].append(grad)
    if momentum == 0:
        made[2].extend(momenta)
    return _settled(made, (parameters, grads, momenta), found_inf)


def _adagrad(keeps_steps: bool) -> Callable[..., Lists]:
    def emit(
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
        grad_scale: jax.Array | None = None,
        found_inf: jax.Array | None = None,
    ) -> Lists:
        made: Lists = ([], [], [])
        for index, parameter in enumerate(parameters):
            grad = _unscaled(grads[index], grad_scale)
            value = _descent(grad, parameter, maximize, weight_decay)
            total = sums[index] + value * value
            rate = lr / (1 + (steps[index].astype(jnp.float64) - 1) * lr_decay)
            made[0].append(
                parameter - rate.astype(parameter.dtype) * value / (jnp.sqrt(total) + eps)
            )
            made[1].append(grad)
            made[2].append(total)
        settled = _settled(made, (parameters, grads, sums), found_inf)
        # The schema calls the steps written too; the kernel only reads them.
        return (*settled, list(steps)) if keeps_steps else settled

    return emit


rule("_fused_adagrad")(_adagrad(keeps_steps=True))
rule("_fused_adagrad.tensor_lr")(_adagrad(keeps_steps=False))
