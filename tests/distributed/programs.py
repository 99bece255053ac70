"""Training programs that know nothing of the device: the same there and on CPU with gloo."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

STEPS = 6
"""Some paths of the device begin at the fifth."""


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = x + self.outer(F.gelu(self.inner(self.norm(x))))
        return found


class Model(nn.Module):
    """A small residual net over tokens."""

    def __init__(self, width: int = 16, depth: int = 1, tokens: int = 11) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, tokens)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        found: torch.Tensor = self.head(x)
        return found


def batch(rank: int, step: int, device: str, size: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    tokens = torch.randint(0, 11, (size, 8), generator=generator)
    return tokens[:, :-1].to(device), tokens[:, 1:].to(device)


def train(
    model: nn.Module,
    device: str,
    data: Callable[[int], tuple[torch.Tensor, torch.Tensor]],
    steps: int = STEPS,
) -> list[float]:
    """Losses of the rank's own batches."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        tokens, targets = data(step)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def on_both(program: Callable[[str, int, int], Any]) -> Callable[[int, int], None]:
    """A rank that runs ``program(device, rank, size)`` on the CPU and on the device: equal results,
    to the last digits that the kernels leave, and the device's really made there."""

    def rank_program(rank: int, size: int) -> None:
        found = {}
        for device in ("cpu", "tpu"):
            torch.manual_seed(0)
            found[device] = program(device, rank, size)
        torch.testing.assert_close(
            torch.as_tensor(found["tpu"]), torch.as_tensor(found["cpu"]), rtol=2e-4, atol=2e-5
        )
        assert os.environ["RANK"] == str(dist.get_rank())

    return rank_program


def is_on(device: str, module: nn.Module) -> None:
    assert {parameter.device.type for parameter in module.parameters()} == {device}
