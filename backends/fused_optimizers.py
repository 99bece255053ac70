"""PyTorch's fused optimizer steps over lists of parameters, but for their arithmetic.

The lists' order and what is written back follow aten/src/ATen/native/cpu/Fused{Adam,SGD,
Adagrad}Kernel.cpp. Gradients are among the results because unscaling writes them back; where
``found_inf`` is 1 nothing changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Rule = Callable[..., Any]
Arrays = Sequence[Any]


def is_zero(number: Any) -> bool:
    """Whether a number is known to be 0: one that varies is not."""
    return isinstance(number, (int, float)) and number == 0


@dataclass(frozen=True)
class FusedOptimizers:
    """A backend's arithmetic, and ``register``, which makes rules of it.

    ``adam``, ``sgd`` and ``adagrad`` take ``values``, one parameter and what belongs to it with the
    gradient unscaled, and the operator's own numbers by name. They return what replaces
    ``values``, in the same order without the gradient, of any dtype.

    Attributes:
        unscaled: of a gradient and a scale, perhaps ``None``: their quotient in its own dtype.
        kept: of a new value, the old one and ``found_inf``, perhaps ``None``: the new one in the
            old one's dtype, or the old one where ``found_inf`` is 1.
        adam: ``(ctx, decoupled, values, step, **numbers)``; parameter, gradient, average, average
            of squares, and perhaps its maximum.
        sgd: ``(ctx, values, **numbers)``; parameter, gradient, and with a momentum its buffer.
        adagrad: ``(ctx, values, step, **numbers)``; parameter, gradient, sum of squares.
    """

    unscaled: Rule
    kept: Rule
    adam: Rule
    sgd: Rule
    adagrad: Rule

    def register(self, rule: Callable[..., Callable[[Rule], Rule]]) -> None:
        """Give every overload its rule."""
        for name, decoupled in (("_fused_adam", False), ("_fused_adamw", True)):
            rule(name, f"{name}.tensor_lr")(self._adam(decoupled))
        rule("_fused_sgd", "_fused_sgd.tensor_lr")(self._sgd())
        rule("_fused_adagrad")(self._adagrad(keeps_steps=True))
        rule("_fused_adagrad.tensor_lr")(self._adagrad(keeps_steps=False))

    def _adam(self, decoupled: bool) -> Rule:
        @functools.wraps(self.adam)
        def rule(
            ctx: Any,
            parameters: Arrays,
            grads: Arrays,
            averages: Arrays,
            squares: Arrays,
            maxima: Arrays,
            steps: Arrays,
            *,
            amsgrad: bool,
            grad_scale: Any = None,
            found_inf: Any = None,
            **numbers: Any,
        ) -> Any:
            unscaled = [self.unscaled(grad, grad_scale) for grad in grads]
            state = (averages, squares, maxima) if amsgrad else (averages, squares)
            made = [
                self.adam(ctx, decoupled, values, step, **numbers)
                for step, *values in zip(steps, parameters, unscaled, *state, strict=True)
            ]
            moved, *states = self._settled(made, (parameters, *state), found_inf)
            states += [] if amsgrad else [list(maxima)]
            return moved, self._gradients(unscaled, grads, found_inf), *states

        return rule

    def _sgd(self) -> Rule:
        @functools.wraps(self.sgd)
        def rule(
            ctx: Any,
            parameters: Arrays,
            grads: Arrays,
            momenta: Arrays,
            *,
            momentum: Any,
            grad_scale: Any = None,
            found_inf: Any = None,
            **numbers: Any,
        ) -> Any:
            unscaled = [self.unscaled(grad, grad_scale) for grad in grads]
            # PyTorch keeps no buffers where there is no momentum; of one that varies they tell.
            state = () if is_zero(momentum) or not momenta else (momenta,)
            made = [
                self.sgd(ctx, values, momentum=momentum, **numbers)
                for values in zip(parameters, unscaled, *state, strict=True)
            ]
            moved, *states = self._settled(made, (parameters, *state), found_inf)
            states += [] if state else [list(momenta)]
            return moved, self._gradients(unscaled, grads, found_inf), *states

        return rule

    def _adagrad(self, keeps_steps: bool) -> Rule:
        @functools.wraps(self.adagrad)
        def rule(
            ctx: Any,
            parameters: Arrays,
            grads: Arrays,
            sums: Arrays,
            steps: Arrays,
            *,
            grad_scale: Any = None,
            found_inf: Any = None,
            **numbers: Any,
        ) -> Any:
            unscaled = [self.unscaled(grad, grad_scale) for grad in grads]
            made = [
                self.adagrad(ctx, values, step, **numbers)
                for step, *values in zip(steps, parameters, unscaled, sums, strict=True)
            ]
            moved, totals = self._settled(made, (parameters, sums), found_inf)
            found = (moved, self._gradients(unscaled, grads, found_inf), totals)
            # The schema calls the steps written too; the kernel only reads them.
            return (*found, list(steps)) if keeps_steps else found

        return rule

    def _gradients(self, unscaled: Arrays, grads: Arrays, found_inf: Any) -> list[Any]:
        return [self.kept(a, b, found_inf) for a, b in zip(unscaled, grads, strict=True)]

    def _settled(
        self, made: Sequence[Arrays], old: Sequence[Arrays], found_inf: Any
    ) -> list[list[Any]]:
        """Of what was made for each parameter, a list for each kind."""
        return [
            [self.kept(one[kind], before, found_inf) for one, before in zip(made, of, strict=True)]
            for kind, of in enumerate(old)
        ]
