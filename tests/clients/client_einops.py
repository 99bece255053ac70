from __future__ import annotations

from typing import Any

import einops
import torch
from einops.layers.torch import Rearrange, Reduce

from tests.clients.conftest import Case
from tests.clients.steps import equal_losses, normal, training

LIBRARY = "einops"


def test_layers(case: Case) -> None:
    """`Rearrange` and `Reduce` as layers, `rearrange`, `repeat` and `einsum`: training steps."""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
            torch.nn.Linear(48, 16),
            Reduce("b n d -> b d", "mean"),
        ).to(device)
        images, goal = normal(2, 3, 16, 16).to(device), normal(2, 16, seed=2).to(device)

        def loss() -> torch.Tensor:
            doubled = einops.repeat(model(images), "b d -> b n d", n=2)
            pairs = einops.einsum(doubled, goal, "b n d, b d -> b n")
            value: torch.Tensor = (einops.rearrange(pairs, "b n -> (b n)") - 1.0).square().mean()
            return value

        return training(model, loss)

    equal_losses(*case.compare(run))
