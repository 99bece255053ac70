from __future__ import annotations

from typing import Any

import torch
from vector_quantize_pytorch import FSQ, VectorQuantize

from tests.clients.conftest import Case
from tests.clients.steps import equal_losses, normal, training

LIBRARY = "vector-quantize-pytorch"


def test_vector_quantize(case: Case) -> None:
    """An autoencoder through `VectorQuantize`, whose codes are moving averages."""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        quantize = VectorQuantize(dim=8, codebook_size=16, decay=0.8)
        model = torch.nn.ModuleList([torch.nn.Linear(6, 8), quantize, torch.nn.Linear(8, 6)])
        model, x = model.to(device), normal(4, 5, 6).to(device)

        def loss() -> torch.Tensor:
            codes, _, commitment = model[1](model[0](x))
            return torch.nn.functional.mse_loss(model[2](codes), x) + commitment.sum()

        return training(model, loss)

    equal_losses(*case.compare(run))


def test_finite_scalars(case: Case) -> None:
    """An autoencoder through `FSQ`: training steps."""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        model = torch.nn.ModuleList([torch.nn.Linear(6, 3), FSQ([8, 5, 5]), torch.nn.Linear(3, 6)])
        model, x = model.to(device), normal(4, 5, 6).to(device)

        def loss() -> torch.Tensor:
            codes, _ = model[1](model[0](x))
            return torch.nn.functional.mse_loss(model[2](codes), x)

        return training(model, loss)

    equal_losses(*case.compare(run))
