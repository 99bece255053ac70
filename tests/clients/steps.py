"""A training loop that several libraries' cases share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.clients.conftest import timed


def training(
    model: torch.nn.Module, loss: Callable[[], torch.Tensor], count: int = 6, lr: float = 1e-2
) -> list[tuple[float, Any]]:
    """``count`` steps of Adam on the parameters of ``model``: seconds and loss of each."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return value.detach()

    return [timed(step) for _ in range(count)]


def normal(*shape: int, seed: int = 1) -> torch.Tensor:
    """The same normal numbers every time, float32, on the host."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def equal_losses(device: Any, cpu: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Both lists of losses are the same numbers, and the model has learned something."""
    torch.testing.assert_close(device, cpu, rtol=rtol, atol=atol)
    assert cpu[-1] < cpu[0]
