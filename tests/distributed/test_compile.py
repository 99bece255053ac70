"""torch.compile of a distributed step: the losses are those of CPU eager with gloo."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import fuse
from tests.distributed.programs import Model, batch, is_on, on_both, train
from tests.distributed.ranks import passes


def compiled(device: str, module: nn.Module) -> nn.Module:
    """The module compiled for the device; on the CPU, which is what is compared with, as it is."""
    if device == "tpu":
        module.compile(backend="tpu")
    return module


def graphs() -> int:
    found: int = sum(fuse.stats()["compiled"]["graphs"].values())
    return found


def ddp(device: str, rank: int, size: int) -> list[float]:
    """The whole wrapped model; Dynamo cuts its graph where the buckets end."""
    torch._dynamo.reset()
    model = DistributedDataParallel(Model(256, 2).to(device), bucket_cap_mb=1)
    is_on(device, model)
    before = graphs() if device == "tpu" else 0
    losses = train(compiled(device, model), device, lambda step: batch(rank, step, device))
    if device == "tpu":
        # Several buckets: a graph and its backward for each part.
        assert graphs() - before >= 4, fuse.stats()["compiled"]
    return losses


def inner(device: str, rank: int, size: int) -> list[float]:
    """The module inside DDP."""
    torch._dynamo.reset()
    model = DistributedDataParallel(compiled(device, Model().to(device)))
    before = graphs() if device == "tpu" else 0
    losses = train(model, device, lambda step: batch(rank, step, device))
    assert device != "tpu" or graphs() > before
    return losses


def fsdp2(device: str, rank: int, size: int) -> list[float]:
    """Each block compiled, then sharded: the hooks between them are not."""
    return sharded(device, rank, size, Model(depth=2), whole=False)


def fsdp2_whole(device: str, rank: int, size: int) -> list[float]:
    """The sharded model compiled: Dynamo breaks its graph at FSDP's hooks."""
    return sharded(device, rank, size, Model(), whole=True)


def sharded(device: str, rank: int, size: int, model: Model, whole: bool) -> list[float]:
    torch._dynamo.reset()
    mesh = init_device_mesh(device, (size,))
    model = model.to(device)
    before = graphs() if device == "tpu" else 0
    for block in model.blocks:
        fully_shard(block if whole else compiled(device, block), mesh=mesh)
    fully_shard(model, mesh=mesh)
    is_on(device, model)
    stepped = compiled(device, model) if whole else model
    losses = train(stepped, device, lambda step: batch(rank, step, device))
    assert device != "tpu" or graphs() > before
    return losses


def check_ddp(rank: int, size: int) -> None:
    on_both(ddp)(rank, size)


def check_inner(rank: int, size: int) -> None:
    on_both(inner)(rank, size)


def check_fsdp2(rank: int, size: int) -> None:
    on_both(fsdp2)(rank, size)


def check_fsdp2_whole(rank: int, size: int) -> None:
    on_both(fsdp2_whole)(rank, size)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_ddp, check_inner, check_fsdp2, check_fsdp2_whole])
def test_a_compiled_step(check: Any) -> None:
    passes(check, 2, "cpu:gloo,tpu:tpu_dist", seconds=200)


def steady(rank: int, size: int) -> None:
    """Eight steps; no executable is looked for that the first three have not made."""
    wrap, whole = os.environ["FUSE_TEST_WRAP"], os.environ["FUSE_TEST_COMPILED"] == "model"
    model: nn.Module = Model(depth=3).to("tpu")
    for block in model.blocks if not whole else ():
        block.compile(backend="tpu")
    if wrap == "fsdp2":
        for part in (*model.blocks, model):
            fully_shard(part, mesh=init_device_mesh("tpu", (size,)))
    stepped = DistributedDataParallel(model) if wrap == "ddp" else model
    if whole:
        stepped.compile(backend="tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sought = []
    for step in range(8):
        tokens, targets = batch(rank, step, "tpu")
        F.cross_entropy(stepped(tokens).flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.tpu.synchronize()
        sought.append(fuse.stats()["cache"]["memory"]["misses"])
    assert graphs() >= 2
    assert sought[-1] == sought[2], sought


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("part", ["model", "blocks"])
@pytest.mark.parametrize("wrap", ["ddp", "fsdp2"])
def test_a_compiled_loop_compiles_nothing_after_its_third_step(
    wrap: str, part: str, size: int
) -> None:
    passes(
        steady,
        size,
        "cpu:gloo,tpu:tpu_dist",
        seconds=200,
        FUSE_TEST_WRAP=wrap,
        FUSE_TEST_COMPILED=part,
    )
