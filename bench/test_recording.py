"""What recording one operation costs, against PyTorch CPU eager's own cost on 4x4 tensors."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fuse

OPERATIONS = 300


def _add(x: torch.Tensor) -> torch.Tensor:
    for _ in range(OPERATIONS):
        x = x + x
    return x


def _mixed(x: torch.Tensor) -> torch.Tensor:
    for _ in range(OPERATIONS // 3):
        x = torch.relu(x * 1.0001).t() + x
    return x


@pytest.mark.parametrize("program", [_add, _mixed], ids=["add", "mixed"])
def test_cost_of_recording(
    program: Callable[[torch.Tensor], torch.Tensor], benchmark: Any, results: dict[str, Any]
) -> None:
    fuse.set_mode("fused")
    device, host = torch.ones(4, 4, device="tpu"), torch.ones(4, 4)
    for _ in range(4):
        program(device)
        torch.tpu.synchronize()
    recorded, eager = [], []
    for _ in range(40):
        before = time.perf_counter()
        kept = program(device)
        recorded.append(time.perf_counter() - before)
        torch.tpu.synchronize()
        before = time.perf_counter()
        program(host)
        eager.append(time.perf_counter() - before)
        del kept
    results[f"recording {program.__name__.strip('_')}"] = {
        "microseconds": {
            "recorded": statistics.median(recorded) / OPERATIONS * 1e6,
            "cpu eager": statistics.median(eager) / OPERATIONS * 1e6,
        }
    }
    benchmark.pedantic(program, args=(host,), rounds=3)
