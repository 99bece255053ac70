"""``torch.tpu.optimizers``: optimizers whose state is an object that a step takes and returns.

They are PyTorch's own algorithms; a step of ``torch.optim`` runs as one program here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Tensors = dict[str, torch.Tensor]


@dataclass(slots=True)
class ParamGroup:
    """Parameters by name, and the optimizer of PyTorch that holds their state."""

    params: Tensors
    optimizer: torch.optim.Optimizer


class Optimizer:
    """A kind of optimizer with its numbers; ``make`` is PyTorch's class."""

    make: Callable[..., torch.optim.Optimizer]

    def __init__(self, **defaults: Any) -> None:
        self.defaults = defaults

    def init_param_group(self, params: Tensors | torch.nn.Module) -> ParamGroup:
        """State for parameters, which the steps overwrite."""
        if isinstance(params, torch.nn.Module):
            params = dict(params.named_parameters())
        return ParamGroup(params, type(self).make(list(params.values()), **self.defaults))

    def step(self, param_group: ParamGroup, grads: Tensors) -> ParamGroup:
        """One step with gradients by name; the group that is given, changed."""
        for name, parameter in param_group.params.items():
            parameter.grad = grads[name]
        param_group.optimizer.step()
        param_group.optimizer.zero_grad()
        return param_group


class AdamW(Optimizer):
    """``torch.optim.AdamW``. Averages have the parameters' dtype, not always bfloat16."""

    make = torch.optim.AdamW

    def __init__(
        self,
        lr: float = 1e-3,
        weight_decay: float = 1e-2,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(lr=lr, weight_decay=weight_decay, betas=(beta1, beta2), eps=eps)


class Sgd(Optimizer):
    """``torch.optim.SGD``."""

    make = torch.optim.SGD

    def __init__(
        self,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
        )


class Muon(Optimizer):
    """``torch.optim.Muon``, for matrices."""

    make = torch.optim.Muon

    def __init__(
        self,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
    ) -> None:
        super().__init__(lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov)


class SingleTraceTrainer:
    """Makes a training step of a model, an optimizer of this module and a loss.

    Nothing has to be traced for it: a step is recorded, and runs as one program where its size
    allows.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Optimizer | None = None,
        compile_fn: Callable[..., Any] | None = None,
        compute_loss_fn: Callable[..., torch.Tensor] | None = None,
    ) -> None:
        """``compute_loss_fn(outputs, targets)``; the outputs are the loss where there is none."""
        self.model, self.optimizer = model, optimizer or AdamW()
        self._loss, self._compile = compute_loss_fn, compile_fn
        self.param_group = self.optimizer.init_param_group(model)

    @property
    def params(self) -> Tensors:
        """The model's parameters by name."""
        return self.param_group.params

    def make_compiled_train_step(
        self,
        example_inputs: Any = None,
        example_targets: Any = None,
        compile_fn: Callable[..., Any] | None = None,
    ) -> Callable[..., torch.Tensor]:
        """``step(inputs, targets=None)``: the loss, after which parameters have been updated."""
        chosen = compile_fn or self._compile
        forward = self.model if chosen is None else chosen(self.model)

        def step(inputs: Any, targets: Any = None) -> torch.Tensor:
            given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
            outputs = forward(*given)
            loss: torch.Tensor = outputs if self._loss is None else self._loss(outputs, targets)
            loss.backward()
            grads = {name: one.grad for name, one in self.params.items() if one.grad is not None}
            self.optimizer.step(self.param_group, grads)
            return loss.detach()

        return step
