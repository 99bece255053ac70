from __future__ import annotations

from typing import Any

import pytest
import torch
import torchdiffeq

from tests.clients.conftest import Case
from tests.clients.steps import equal_losses, normal, training

LIBRARY = "torchdiffeq"


class Field(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)
        )

    def forward(self, time: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        change: torch.Tensor = self.layers(state)
        return change


@pytest.mark.parametrize("how", ["odeint, rk4", "odeint, dopri5", "odeint_adjoint, dopri5"])
def test_training(case: Case, how: str) -> None:
    """A neural ODE: training steps"""
    name, method = how.split(", ")

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        field = Field().to(device)
        start, goal = normal(4, 2).to(device), normal(3, 4, 2, seed=2).to(device)
        times = torch.tensor([0.0, 0.5, 1.0], device=device)

        def loss() -> torch.Tensor:
            states = getattr(torchdiffeq, name)(field, start, times, method=method)
            return torch.nn.functional.mse_loss(states, goal)

        return training(field, loss, count=4)

    equal_losses(*case.compare(run), rtol=1e-3, atol=1e-4)
