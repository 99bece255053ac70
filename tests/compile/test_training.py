"""Training under torch.compile: forward, backward, optimizers, mutated inputs, random numbers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fuse
from tests.compile.harness import Compile, compare_with_cpu
from tests.lanes import only_in
from tests.marks import slow_but

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD, momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "AdamW, not foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01),
}


def small() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(8, 16, bias=False),
        nn.BatchNorm1d(16),
        nn.GELU(),
        nn.LayerNorm(16),
        nn.Linear(16, 4),
    )


def train(device: torch.device, compile: Compile, optimizer: str, whole: bool) -> Any:
    model = small().to(device)
    x, y = torch.randn(6, 8).to(device), torch.randint(0, 4, (6,)).to(device)
    chosen = OPTIMIZERS[optimizer](model.parameters())
    net = model if whole else compile(model)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        chosen.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        chosen.step()
        return loss

    step = compile(step) if whole else step
    losses = [step(x, y).item() for _ in range(7)]
    return {"losses": losses, "state": model.state_dict()}


@pytest.mark.parametrize("optimizer", slow_but(["AdamW"], ["SGD, momentum", "AdamW"]))
def test_a_compiled_model_trains_as_on_the_cpu(optimizer: str):
    compare_with_cpu(lambda device, compile: train(device, compile, optimizer, whole=False))


@pytest.mark.parametrize("optimizer", slow_but(["SGD, momentum", "AdamW", "Adagrad"], OPTIMIZERS))
def test_a_compiled_step_trains_as_on_the_cpu(optimizer: str):
    compare_with_cpu(lambda device, compile: train(device, compile, optimizer, whole=True), runs=1)


class Block(nn.Module):
    """Dynamo compiles a call of a user's own module, and not one of PyTorch's alone."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.inner(x))


@only_in("compiled", "accelerator", reason="counts what is compiled")
def test_blocks_compiled_one_by_one_are_steady_from_the_second_step():
    """Autograd takes a gradient that nobody else holds: a kept one would be copied, block by block
    until each block's call is known, and each such step is another program."""
    model = nn.Sequential(*(Block() for _ in range(4))).to("tpu")
    for block in model:
        block.compile(backend="tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x, found = torch.randn(6, 8).to("tpu"), []
    fuse.reset_stats()
    for _ in range(5):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        stats = fuse.stats()
        found.append((stats["operations"], stats["compiled"]["captures"], stats["compiles"]))
    operations, captures, compiles = zip(*found, strict=True)
    assert captures == (8,) * 5  # each block's forward and backward pass, once
    assert len({after - before for before, after in pairwise(operations[1:])}) == 1, operations
    assert compiles[1] == compiles[-1], compiles


@pytest.mark.parametrize("shared", [4, 2])
def test_attention_over_transposed_projections(shared: int):
    """Its gradients lie in memory otherwise than shape inference says, and are viewed at once."""

    def program(device: torch.device, compile: Compile) -> Any:
        query, key, value = (nn.Linear(32, 8 * heads, bias=False) for heads in (4, shared, shared))
        net = nn.ModuleList([query, key, value]).to(device)

        @compile
        def attend(x: torch.Tensor) -> torch.Tensor:
            q, k, v = (part(x).unflatten(-1, (-1, 8)).transpose(1, 2) for part in net)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return mixed.transpose(1, 2).flatten(2)

        for _ in range(3):
            attend(torch.randn(8, 64, 32).to(device)).square().mean().backward()
        return [one.grad for one in net.parameters()]

    compare_with_cpu(program)
