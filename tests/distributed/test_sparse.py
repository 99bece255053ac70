"""Sparse tensors in a process group: their sums, and DDP over embeddings with sparse gradients."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fuse
from tests.device.sparse.programs import coordinates
from tests.distributed.programs import on_both
from tests.distributed.ranks import passes

BOTH = "cpu:gloo,tpu:tpu_dist"


def sums(rank: int, size: int) -> None:
    """Of as many elements as each rank has, none among them; hybrid ones; means."""
    for elements, dense in ((3, ()), (0, ()), (4, (2,))):
        every = [coordinates((4, 3), elements * one, dense, seed=one) for one in range(size)]
        x = every[rank].to("tpu")
        dist.all_reduce(x)
        assert x.layout == torch.sparse_coo and x.device.type == "tpu"
        expected = torch.stack([one.to_dense() for one in every]).sum(0)
        torch.testing.assert_close(x.to_dense().cpu(), expected)
    x = torch.eye(3).to_sparse().to("tpu") * (rank + 1)
    work = dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True)
    work.wait()
    torch.testing.assert_close(x.to_dense().cpu(), torch.eye(3) * (size + 1) / 2)
    assert fuse.stats()["host_fallbacks"] == {}


def refused(rank: int, size: int) -> None:
    """What is no sum, in words that name a way out; the group goes on."""
    x = torch.eye(3).to_sparse().to("tpu")
    with pytest.raises(NotImplementedError, match=r"sends dense tensors only.*call .to_dense\(\)"):
        dist.all_reduce(torch.eye(3).to_sparse_csr().to("tpu"))
    with pytest.raises(NotImplementedError, match="c10d::broadcast_: the process group"):
        dist.broadcast(x, 0)
    with pytest.raises(ValueError, match="there are sums and means only; call to_dense"):
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
    dist.all_reduce(x)
    assert x.to_dense().sum().item() == 3 * size


def ddp(device: str, rank: int, size: int) -> list[float]:
    table = nn.Sequential(nn.Embedding(30, 4, sparse=True), nn.Linear(4, 2)).to(device)
    model = DistributedDataParallel(table)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for step in range(6):
        words = torch.arange(rank, rank + 3 + rank, device=device) * (step + 1) % 30
        loss = model(words).square().sum()
        optimizer.zero_grad()
        loss.backward()
        assert table[0].weight.grad.layout == torch.sparse_coo
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_ddp(rank: int, size: int) -> None:
    on_both(ddp)(rank, size)


@pytest.mark.parametrize("size", [2, 3])
def test_sums(size: int):
    passes(sums, size)


def test_what_is_refused():
    passes(refused, 2)


def test_ddp_with_sparse_gradients():
    passes(check_ddp, 2, BOTH, seconds=110)
