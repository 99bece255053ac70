"""Pipelines of stages: the values of CPU tensors with gloo."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from tests.distributed.programs import on_both
from tests.distributed.ranks import passes

STEPS = 6
BATCH = 8


class Part(nn.Module):
    """A stage: what every rank has one of."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 12)
        self.outer = nn.Linear(12, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = x + self.outer(F.gelu(self.inner(x)))
        return found


def pipeline(schedule: Any, device: str, rank: int, size: int) -> list[float]:
    """Losses of the last stage, and each rank's parameters after the steps."""
    torch.manual_seed(rank)
    part = Part().to(device)
    stage = PipelineStage(part, rank, size, torch.device(device))
    losses: list[torch.Tensor] = []
    running = schedule(stage, n_microbatches=4, loss_fn=F.mse_loss)
    optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        x, y = (torch.randn(BATCH, 6, generator=generator).to(device) for _ in range(2))
        if rank == 0:
            running.step(x)
        elif rank == size - 1:
            running.step(target=y, losses=losses)
        else:
            running.step()
        optimizer.step()
        optimizer.zero_grad()
    assert all(loss.device.type == device for loss in losses)
    assert len(losses) == (4 if rank == size - 1 else 0)  # the last step's
    weights = [float(one.detach().sum()) for one in part.parameters()]
    return [*map(float, losses), *weights]


def check_gpipe(rank: int, size: int) -> None:
    on_both(lambda *given: pipeline(ScheduleGPipe, *given))(rank, size)


def check_1f1b(rank: int, size: int) -> None:
    on_both(lambda *given: pipeline(Schedule1F1B, *given))(rank, size)


@pytest.mark.slow
@pytest.mark.parametrize(("check", "size"), [(check_gpipe, 2), (check_1f1b, 2), (check_1f1b, 3)])
def test_a_pipeline(check: Any, size: int) -> None:
    passes(check, size, "cpu:gloo,tpu:tpu_dist", seconds=200)
