from __future__ import annotations

from typing import Any

import torch
from e3nn import o3
from e3nn.nn import Gate

from tests.clients.conftest import Case
from tests.clients.steps import equal_losses, normal, training

LIBRARY = "e3nn"


class Layer(torch.nn.Module):
    """Spherical harmonics of directions, a tensor product by learned weights, a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate("4x0e", [torch.tanh], "2x0e", [torch.sigmoid], "2x1o")
        self.product = o3.FullyConnectedTensorProduct("4x0e", "0e + 1o", self.gate.irreps_in)

    def forward(self, scalars: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
        harmonics = o3.spherical_harmonics("0e + 1o", directions, normalize=True)
        out: torch.Tensor = self.gate(self.product(scalars, harmonics))
        return out


def test_training(case: Case) -> None:
    """An equivariant layer (`FullyConnectedTensorProduct`, `Gate`): training steps."""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        model = Layer().to(device)
        scalars, directions = normal(8, 4).to(device), normal(8, 3, seed=2).to(device)
        goal = normal(8, 10, seed=3).to(device)
        return training(
            model, lambda: torch.nn.functional.mse_loss(model(scalars, directions), goal)
        )

    equal_losses(*case.compare(run))
