"""PyTorch's fused optimizer steps over lists of parameters, but for their arithmetic.

The lists' order and what is written back follow aten/src/ATen/native/cpu/Fused{Adam,SGD,
Adagrad}Kernel.cpp. Gradients are among the results because unscaling writes them back; where
``found_inf`` is 1 nothing changes.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

Rule = Callable[..., Any]
Arrays = Sequence[Any]


class FusedOptimizers(ABC):
    """A backend's arithmetic, and ``register``, which makes rules of it.

    ``adam``, ``sgd`` and ``adagrad`` take one parameter and what belongs to it, the gradient
    unscaled, and the operator's own numbers by name; they return what replaces them, in the same
    order without the gradient, of any dtype.
    """

    @abstractmethod
    def unscaled(self, grad: Any, scale: Any) -> Any:
        """The gradient divided by the scale, in its own dtype."""

    @abstractmethod
    def kept(self, new: Any, old: Any, found_inf: Any) -> Any:
        """``new`` in the dtype of ``old``, or ``old`` where ``found_inf`` is 1 (or ``None``)."""

    @abstractmethod
    def adam(self, ctx: Any, decoupled: bool, values: Arrays, step: Any, **numbers: Any) -> Arrays:
        """``values``: parameter, gradient, average, average of squares, perhaps its maximum."""

    @abstractmethod
    def sgd(self, ctx: Any, values: Arrays, **numbers: Any) -> Arrays:
        """``values``: parameter, gradient, and with a momentum its buffer."""

    @abstractmethod
    def adagrad(self, ctx: Any, values: Arrays, step: Any, **numbers: Any) -> Arrays:
        """``values``: parameter, gradient, sum of squares."""

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
            momentum: float,
            grad_scale: Any = None,
            found_inf: Any = None,
            **numbers: Any,
        ) -> Any:
            unscaled = [self.unscaled(grad, grad_scale) for grad in grads]
            state = (momenta,) if momentum != 0 else ()
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
