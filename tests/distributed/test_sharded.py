"""FSDP2, HSDP, DTensor, tensor parallel and distributed checkpoints, unmodified."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import fuse
from tests.distributed.programs import Model, batch, is_on, on_both, train
from tests.distributed.ranks import passes
from tests.marks import slow_but


def sharded(device: str, mesh: DeviceMesh, **options: Any) -> nn.Module:
    model = Model().to(device)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    is_on(device, model)
    return model


def fsdp2(device: str, rank: int, size: int) -> list[float]:
    model = sharded(device, init_device_mesh(device, (size,)))
    return train(model, device, lambda step: batch(rank, step, device))


def hybrid(device: str, rank: int, size: int) -> list[float]:
    mesh = init_device_mesh(device, (2, size // 2), mesh_dim_names=("replicas", "shards"))
    return train(sharded(device, mesh), device, lambda step: batch(rank, step, device))


def kept(device: str, rank: int, size: int) -> list[float]:
    mesh = init_device_mesh(device, (size,))
    model = sharded(device, mesh, reshard_after_forward=False)
    return train(model, device, lambda step: batch(rank, step, device), 4)


def mixed(device: str, rank: int, size: int) -> list[float]:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = init_device_mesh(device, (size,))
    losses = train(
        sharded(device, mesh, mp_policy=policy), device, lambda step: batch(rank, step, device), 4
    )
    # bfloat16 has 8 bits, and the two sides round in other places.
    return [round(loss, 1) for loss in losses[:2]]


def check_fsdp2(rank: int, size: int) -> None:
    on_both(fsdp2)(rank, size)
    on_both(kept)(rank, size)


def check_mixed(rank: int, size: int) -> None:
    on_both(mixed)(rank, size)


def check_steady(rank: int, size: int) -> None:
    model = sharded("tpu", init_device_mesh("tpu", (size,)))
    made = []
    for step in range(6):
        train(model, "tpu", lambda _, step=step: batch(rank, step, "tpu"), 1)
        made.append((fuse.stats()["cache"]["memory"]["misses"], dict(fuse.stats()["cuts"])))
    assert made[-1][0] == made[3][0], made
    assert "synchronize" not in made[-1][1], made[-1]


@pytest.mark.parametrize("check", slow_but([check_fsdp2], [check_fsdp2, check_mixed, check_steady]))
def test_fsdp2(check: Any) -> None:
    passes(check, 2, "cpu:gloo,tpu:tpu_dist", seconds=110)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_fsdp2, check_mixed, check_steady])
def test_fsdp2_where_shards_are_uneven(check: Any) -> None:
    """Neither 11 nor 16 nor 32 rows are a multiple of three."""
    passes(check, 3, "cpu:gloo,tpu:tpu_dist", seconds=170)


def check_hybrid(rank: int, size: int) -> None:
    on_both(hybrid)(rank, size)


@pytest.mark.slow
def test_hybrid_shards_of_four_ranks() -> None:
    passes(check_hybrid, 4, "cpu:gloo,tpu:tpu_dist", seconds=200)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 12)
        self.second = nn.Linear(12, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.norm(self.second(torch.relu(self.first(x))))
        return found


def tensor_parallel(device: str, rank: int, size: int) -> list[float]:
    mesh = init_device_mesh(device, (size,))
    plan = {
        "first": ColwiseParallel(),
        "second": RowwiseParallel(output_layouts=Shard(0)),
        "norm": SequenceParallel(sequence_dim=0, use_local_output=True),
    }
    model = parallelize_module(Mlp().to(device), mesh, plan)
    is_on(device, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(6):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(7, 8, generator=generator).to(device)
        loss = (model(x) - x.chunk(size)[rank]).square().mean()  # rows are shared out
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def redistributed(device: str, rank: int, size: int) -> list[float]:
    mesh = init_device_mesh(device, (size,))
    whole = torch.arange(24.0).reshape(4, 6).to(device)
    found = []
    for start in ([Replicate()], [Shard(0)], [Shard(1)]):
        tensor = distribute_tensor(whole, mesh, start)
        for end in ([Replicate()], [Shard(0)], [Shard(1)]):
            moved = tensor.redistribute(mesh, end)
            assert moved.to_local().device.type == device
            found.append((moved * (rank + 1) if end == [Replicate()] else moved).to_local().sum())
            found.append(moved.full_tensor().sum())
    partial = DTensor.from_local(whole * (rank + 1), mesh, [Partial()])
    for end in ([Replicate()], [Shard(0)]):
        found.append(partial.redistribute(mesh, end).to_local().sum())
    uneven = distribute_tensor(torch.arange(5.0).to(device), mesh, [Shard(0)])
    found.append((uneven @ uneven).full_tensor())
    product = distribute_tensor(whole, mesh, [Shard(1)]) @ distribute_tensor(
        whole.t().contiguous(), mesh, [Shard(0)]
    )
    found.append(product.full_tensor().sum())
    return [float(value) for value in found]


def check_tensors(rank: int, size: int) -> None:
    on_both(redistributed)(rank, size)
    mesh = init_device_mesh("tpu", (size,))
    drawn = torch.distributed.tensor.rand(4, 4, device_mesh=mesh, placements=[Shard(0)])
    parts = drawn.full_tensor().cpu()
    assert 0 <= parts.min() < parts.max() < 1 and not torch.equal(parts[:2], parts[2:])


def check_parallel(rank: int, size: int) -> None:
    on_both(tensor_parallel)(rank, size)


@pytest.mark.parametrize(
    ("check", "size"),
    [
        (check_tensors, 3),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in ((check_tensors, 2), (check_parallel, 2), (check_parallel, 3))
        ),
    ],
)
def test_distributed_tensors(check: Any, size: int) -> None:
    """On three ranks one has nothing of four rows, and none has as many of 16 as the others."""
    passes(check, size, "cpu:gloo,tpu:tpu_dist", seconds=170)


def check_checkpoint(rank: int, size: int) -> None:
    """Saved by ranks that share parameters, loaded by one and by replicas."""
    objects: list[Any] = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(objects, 0)
    torch.manual_seed(rank)
    mesh = init_device_mesh("tpu", (size,))
    model = sharded("tpu", mesh)
    train(model, "tpu", lambda step: batch(rank, step, "tpu"), 1)
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=objects[0])
    expected = {name: value.full_tensor().cpu() for name, value in model.state_dict().items()}
    whole = Model().to("tpu")
    state = {"model": whole.state_dict()}
    dcp.load(state, checkpoint_id=objects[0])
    for name, value in whole.state_dict().items():
        assert value.device.type == "tpu"
        torch.testing.assert_close(value.cpu(), expected[name])
    other = sharded("tpu", mesh, reshard_after_forward=False)
    state = {"model": get_model_state_dict(other)}
    dcp.load(state, checkpoint_id=objects[0])
    set_model_state_dict(other, state["model"])
    for name, value in other.state_dict().items():
        torch.testing.assert_close(value.full_tensor().cpu(), expected[name])


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_checkpoints_are_resharded(size: int) -> None:
    passes(check_checkpoint, size, "cpu:gloo,tpu:tpu_dist", seconds=170)
