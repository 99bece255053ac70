"""Tiers around compiled graphs: what a graph does while it is compiled, and what follows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import fuse
from fuse.device import lazy
from tests.device.helpers import DEVICE, Block, Counted, recorder
from tests.device.tiers.stuck import stuck_compiler
from tests.device.tiers.test_tiers import CPU, until
from tests.lanes import not_on_accelerators

pytestmark = not_on_accelerators("no call runs uncompiled there")


def losses(device: torch.device, compiles: str) -> Iterator[float]:
    """Training a model that is compiled, or one block of it; all else is eager."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Block(), nn.Linear(8, 3)).to(device)
    x, y = torch.randn(2, 5, 8).to(device), (torch.arange(10) % 3).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    call = model
    if device == DEVICE and compiles == "the model":
        call = torch.compile(model, backend="tpu")
    elif device == DEVICE:
        model[1] = torch.compile(model[1], backend="tpu")
    while True:
        loss = nn.functional.cross_entropy(call(x).flatten(0, 1), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()


def compared(compiles: str) -> Iterator[None]:
    for found, expected in zip(losses(DEVICE, compiles), losses(CPU, compiles), strict=True):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)
        yield


@pytest.mark.parametrize("compiles", ["the model", "a block"])
def test_a_graph_runs_uncompiled_while_it_is_compiled(compiles: str) -> None:
    with recorder(tier="auto"), stuck_compiler() as compiler:
        steps = compared(compiles)
        next(steps)  # captured
        before = compiler.counts.uncompiled_chunks
        with Counted() as found:
            for _ in range(8):
                next(steps)
        # What follows the graphs may be worth recording, once each.
        assert found.uncompiled > 50 * 8 and compiler.counts.uncompiled_chunks - before <= 3
        assert compiler.counts.compiled == 0 < before
        assert fuse.stats()["cuts"]["tier"] > 0


@pytest.mark.parametrize("compiles", ["the model", "a block"])
def test_what_follows_a_graph_is_decided_by_itself(compiles: str) -> None:
    """Till every segment of a step has been tried; each step's loss is the CPU's."""
    with recorder(tier="auto"):
        steps = compared(compiles)

        def tried() -> bool:
            steady = [kind for kind in lazy.core().tiers() if sum(kind["segments"]) > 3]
            return len(steady) > 1 and all(kind["trials"] for kind in steady)

        until(tried, lambda: next(steps))
        for _ in range(10):
            next(steps)


def test_a_graph_is_recorded_for_who_explains() -> None:
    with recorder(tier="auto"), stuck_compiler():
        function = torch.compile(lambda x: (x @ x).tanh() + 1, backend="tpu")
        x = torch.ones(3, 3, device=DEVICE)
        for _ in range(3):
            function(x).sum().item()
        lazy.core().watch(1)
        with Counted() as found:
            function(x).sum().item()
        lazy.core().watch(0)
        assert (found.recorded, found.uncompiled) == (4, 0)
        text = str(fuse.explain(lambda: function(x).sum().item(), steady=True, seconds=0))
        assert "from a compiled graph, 3 calls: uncompiled: its executables are being made" in text
