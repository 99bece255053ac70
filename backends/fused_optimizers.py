"""PyTorch's fused optimizer steps over lists of parameters, but for their arithmetic.

The lists' order and what is written back follow aten/src/ATen/native/cpu/Fused{Adam,SGD,
Adagrad}Kernel.cpp. Gradients are among the results because unscaling writes them back; where
``found_inf`` is 1 nothing changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from fuse.backends.context import A, Array, Operation, Register, Result, Rule, Scalar


def is_zero(number: Array | Scalar) -> bool:
    """Whether a number is known to be 0: one that varies is not."""
    return isinstance(number, (int, float)) and number == 0


@dataclass(frozen=True)
class FusedOptimizers(Generic[A]):
    """A backend's arithmetic, and ``register``, which makes rules of it.

    ``adam``, ``sgd`` and ``adagrad`` take ``values``, one parameter and what belongs to it with the
    gradient unscaled, and the operator's own numbers by name. They return what replaces
    ``values``, in the same order without the gradient, of any dtype.

    Attributes:
        unscaled: of a gradient and a scale, perhaps ``None``: their quotient in its own dtype.
        kept: of a new value, the old one and ``found_inf``, perhaps ``None``: the new one in the
            old one's dtype, or the old one where ``found_inf`` is 1.
        adam: ``(ctx, decoupled, values, counted, **numbers)``; parameter, gradient, average,
            average of squares, and perhaps its maximum; ``counted`` is its step's.
        sgd: ``(ctx, values, **numbers)``; parameter, gradient, and with a momentum its buffer.
        adagrad: ``(ctx, values, step, **numbers)``; parameter, gradient, sum of squares.
        counted: ``(ctx, steps, **numbers)``; what ``adam`` takes of each step.
    """

    unscaled: Callable[[A, A | None], A]
    kept: Callable[[A, A, A | None], A]
    adam: Callable[..., Sequence[A]]
    sgd: Callable[..., Sequence[A]]
    adagrad: Callable[..., Sequence[A]]
    counted: Callable[..., Sequence[Any]]

    def register(self, rule: Register) -> None:
        """Give every overload its rule."""
        for name, decoupled in (("_fused_adam", False), ("_fused_adamw", True)):
            rule(name, f"{name}.tensor_lr")(self._adam(decoupled))
        rule("_fused_sgd", "_fused_sgd.tensor_lr")(self._sgd())
        rule("_fused_adagrad")(self._adagrad(keeps_steps=True))
        rule("_fused_adagrad.tensor_lr")(self._adagrad(keeps_steps=False))

    def _adam(self, decoupled: bool) -> Rule:
        @functools.wraps(self.adam)
        def rule(
            ctx: Operation[A],
            parameters: Sequence[A],
            grads: Sequence[A],
            averages: Sequence[A],
            squares: Sequence[A],
            maxima: Sequence[A],
            steps: Sequence[A],
            *,
            amsgrad: bool,
            grad_scale: A | None = None,
            found_inf: A | None = None,
            **numbers: Any,
        ) -> Result:
            unscaled = [self.unscaled(grad, grad_scale) for grad in grads]
            state = (averages, squares, maxima) if amsgrad else (averages, squares)
            counted = self.counted(ctx, steps, **numbers)
            made = [
                self.adam(ctx, decoupled, values, step, **numbers)
                for step, *values in zip(counted, parameters, unscaled, *state, strict=True)
            ]
            moved, *states = self._settled(made, (parameters, *state), found_inf)
            states += [] if amsgrad else [list(maxima)]
            return moved, self._gradients(unscaled, grads, found_inf), *states

        return rule

    def _sgd(self) -> Rule:
        @functools.wraps(self.sgd)
        def rule(
            ctx: Operation[A],
            parameters: Sequence[A],
            grads: Sequence[A],
            momenta: Sequence[A],
            *,
            momentum: A | float,
            grad_scale: A | None = None,
            found_inf: A | None = None,
            **numbers: Any,
        ) -> Result:
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
            ctx: Operation[A],
            parameters: Sequence[A],
            grads: Sequence[A],
            sums: Sequence[A],
            steps: Sequence[A],
            *,
            grad_scale: A | None = None,
            found_inf: A | None = None,
            **numbers: Any,
        ) -> Result:
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

    def _gradients(self, unscaled: Sequence[A], grads: Sequence[A], found_inf: A | None) -> list[A]:
        return [self.kept(a, b, found_inf) for a, b in zip(unscaled, grads, strict=True)]

    def _settled(
        self, made: Sequence[Sequence[A]], old: Sequence[Sequence[A]], found_inf: A | None
    ) -> list[list[A]]:
        """Of what was made for each parameter, a list for each kind."""
        return [
            [self.kept(one[kind], before, found_inf) for one, before in zip(made, of, strict=True)]
            for kind, of in enumerate(old)
        ]
