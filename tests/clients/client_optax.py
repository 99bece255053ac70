"""Optimizers of optax in a loop of PyTorch's: its update is a kernel on trees of tensors."""

from __future__ import annotations

from typing import Any

import optax
import torch

import fuse
from tests.clients.conftest import Case, timed
from tests.clients.steps import equal_losses, normal

LIBRARY = "optax"


def test_adam_as_a_step(case: Case) -> None:
    """`optax.adam` by `fuse.jax_call` as a step of PyTorch's: the losses of `torch.optim.Adam`."""
    rule = optax.adam(1e-2)

    def update(parameters: Any, gradients: Any, state: Any) -> Any:
        changes, state = rule.update(gradients, state, parameters)
        return optax.apply_updates(parameters, changes), state

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        ).to(device)
        parameters = dict(model.named_parameters())
        x, y = normal(32, 8).to(device), normal(32, 1, seed=2).to(device)
        adam = torch.optim.Adam(model.parameters(), lr=1e-2)
        values = {name: one.detach() for name, one in parameters.items()}
        state = fuse.jax_call(rule.init, values) if device == "tpu" else None

        def step() -> torch.Tensor:
            nonlocal state
            model.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            if device == "cpu":
                adam.step()
                return loss.detach()
            values = {name: one.detach() for name, one in parameters.items()}
            gradients = {name: one.grad for name, one in parameters.items()}
            new, state = fuse.jax_call(update, values, gradients, state)
            for name, value in new.items():
                values[name].copy_(value)
            return loss.detach()

        return [timed(step) for _ in range(20)]

    equal_losses(*case.compare(run))
    assert case.fallbacks == "0"
