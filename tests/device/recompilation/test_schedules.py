"""Schedules of optimizers: a learning rate that moves at every step compiles nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import fuse
from tests.device.helpers import DEVICE, made
from tests.lanes import only_in

pytestmark = only_in("compiled", "accelerator", reason="counts what numbers that move compile")

STEPS = 20
Schedule = dict[str, Callable[[int], Any]]

RATE: Schedule = {"lr": lambda k: 0.05 / (1 + k)}
EVERY: dict[str, Schedule] = {
    "Adam": {
        "lr": lambda k: 0.05 / (1 + k),
        "weight_decay": lambda k: 0.01 * (1 + k),
        "eps": lambda k: 1e-8 * (1 + k),
        "betas": lambda k: (0.9 - 0.01 * k, 0.999 - 0.001 * k),
    },
    "SGD": {
        "lr": lambda k: 0.05 / (1 + k),
        "weight_decay": lambda k: 0.01 * (1 + k),
        "momentum": lambda k: 0.9 - 0.01 * k,
    },
    "Adagrad": {
        "lr": lambda k: 0.05 / (1 + k),
        "weight_decay": lambda k: 0.01 * (1 + k),
        "lr_decay": lambda k: 0.01 * (1 + k),
        "eps": lambda k: 1e-8 * (1 + k),
    },
}
EVERY["AdamW"] = EVERY["Adam"]

CASES: dict[str, tuple[str, dict[str, Any], Schedule]] = {
    f"{name} {form} {label}": (name, {form: True, **options}, schedule)
    for name, options in {
        "Adam": {"lr": 0.05},
        "AdamW": {"lr": 0.05, "amsgrad": True},
        "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True},
        "Adagrad": {"lr": 0.05},
    }.items()
    for form in ("fused", "foreach")
    for label, schedule in (("rate", RATE), ("all", EVERY[name]))
}
CASES["Adam fused decay from 0"] = ("Adam", {"fused": True}, {"weight_decay": lambda k: 0.1 * k})
CASES["SGD fused without momentum"] = ("SGD", {"fused": True, "lr": 0.05}, RATE)


def trained(
    case: str, device: torch.device | str, dtype: torch.dtype = torch.float32
) -> tuple[list[torch.Tensor], list[int]]:
    """The weights after some steps of a schedule, and the executables made up to each step."""
    name, options, schedule = CASES[case]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).to(device, dtype)
    x, y = torch.randn(6, 4).to(device, dtype), torch.randn(6, 2).to(device, dtype)
    optimizer = getattr(torch.optim, name)(model.parameters(), **options)
    counts = []
    for step in range(STEPS):
        for number, value in schedule.items():
            optimizer.param_groups[0][number] = value(step)
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
        torch.tpu.synchronize()
        counts.append(made())
    return [weight.detach().cpu() for weight in model.parameters()], counts


@pytest.mark.parametrize("backend", ["xla", "numpy"])
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_compiled_once_numbers_have_had_two_values(case: str, backend: str) -> None:
    # SGD's momentum is first passed in the second step, but to a fused one.
    settled = 3 if case == "SGD foreach all" else 2
    expected, _ = trained(case, "cpu")
    with fuse.FusedEager(backend=backend):
        weights, counts = trained(case, DEVICE)
    assert len(set(counts[settled - 1 :])) == 1, counts
    torch.testing.assert_close(weights, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["AdamW fused all", "Adagrad fused all"])
def test_what_is_made_of_numbers_alone_is_double(case: str) -> None:
    """``1 - beta ** step`` of a beta rounded to float32 is wrong in its fifth digit."""
    expected, _ = trained(case, "cpu", torch.float64)
    weights, _ = trained(case, DEVICE, torch.float64)
    torch.testing.assert_close(weights, expected, rtol=1e-9, atol=1e-12)
