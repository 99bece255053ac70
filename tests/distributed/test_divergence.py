"""Ranks whose programs differ between two collectives: right, and none hangs."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.distributed.programs import Model, batch, train
from tests.distributed.ranks import passes

PROGRAMS = int(os.environ.get("FUSE_TEST_DIVERGENT_PROGRAMS", "20"))


def diversion(chance: random.Random, kept: list[torch.Tensor], x: torch.Tensor) -> None:
    """Something that only this rank does."""
    kind = chance.randrange(6)
    if kind == 0:
        x.sum().item()
    elif kind == 1:
        kept.append(x * chance.randrange(1, 4))
    elif kind == 2:
        torch.tpu.synchronize()
    elif kind == 3:
        size = chance.randrange(1, 6)
        (torch.ones(size, 3, device="tpu") @ torch.ones(3, size, device="tpu")).sum()
    elif kind == 4:
        kept.clear()
    else:
        torch.tpu.Event().record().synchronize()


def collective(chance: random.Random, x: torch.Tensor, host: torch.Tensor, rank: int) -> Any:
    """The same on every rank, for ``chance`` is: the device's tensor, and what it has to be.

    ``host`` holds every rank's value, of shape [ranks, 8].
    """
    size = len(host)
    kind = chance.randrange(5)
    if kind == 0:
        dist.all_reduce(x)
        return x, host.sum(0).expand(size, -1)
    if kind == 1:
        root = chance.randrange(size)
        dist.broadcast(x, root)
        return x, host[root].expand(size, -1)
    if kind == 2:
        out = torch.empty(size * 8, device="tpu")
        work = dist.all_gather_into_tensor(out, x, async_op=True)
        work.wait()
        return out.view(size, 8).sum(0), host.sum(0).expand(size, -1)
    if kind == 3:
        out = torch.empty(8 // size, device="tpu")
        dist.reduce_scatter_tensor(out, x)
        return out.repeat(size), host.sum(0).view(size, -1).repeat(1, size)
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x)
    return out, host.view(size, size, -1).transpose(0, 1).reshape(size, 8)


def program(seed: int, rank: int, size: int) -> None:
    shared, own = random.Random(seed), random.Random(1000 * seed + rank)
    host = torch.arange(8.0).expand(size, -1) + torch.arange(float(size))[:, None]
    x = host[rank].to("tpu")
    kept: list[torch.Tensor] = []
    for _ in range(shared.randrange(3, 9)):
        for _ in range(own.randrange(3)):
            diversion(own, kept, x)
        x, host = collective(shared, x, host, rank)
        x, host = x * 0.5 + 1, host * 0.5 + 1
        for _ in range(own.randrange(2)):
            diversion(own, kept, x)
    torch.testing.assert_close(x.cpu(), host[rank].contiguous(), msg=f"program {seed}")


def divergent(rank: int, size: int) -> None:
    for seed in range(PROGRAMS):
        program(seed, rank, size)


def test_random_programs() -> None:
    passes(divergent, 2, seconds=100 + 3 * PROGRAMS)


def uneven(rank: int, size: int) -> None:
    """Rank 0 logs and evaluates, rank 1 keeps an average; their batches have other sizes."""
    model = DistributedDataParallel(Model().to("tpu"))
    average = [torch.zeros_like(p) for p in model.parameters()]
    for round_ in range(3):
        losses = train(
            model, "tpu", lambda step, r=round_: batch(rank, 10 * r + step, "tpu", 2 + rank), 2
        )
        assert all(loss == loss for loss in losses)
        with torch.no_grad():
            if rank == 0:
                model.module(batch(5, round_, "tpu")[0]).argmax(-1).cpu()
            else:
                for mean, parameter in zip(average, model.parameters(), strict=True):
                    mean.lerp_(parameter, 0.1)
    total = torch.stack([p.double().sum() for p in model.parameters()]).sum()
    both = [torch.empty_like(total) for _ in range(size)]
    dist.all_gather(both, total)
    assert both[0].item() == both[1].item()


@pytest.mark.slow
def test_ranks_that_do_other_things_between() -> None:
    passes(uneven, 2, seconds=110)
