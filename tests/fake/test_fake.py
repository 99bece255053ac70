"""``fuse.fake``: what a program sees that holds no data, alone and as one of many ranks."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

import fuse
from fuse.distributed import joined, runtime
from fuse.errors import FuseError


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    assert not dist.is_initialized()
    assert fuse.get_backend() != "fake"


def test_a_model_of_billions_of_parameters_takes_no_memory_and_trains() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with fuse.fake() as run:
        with torch.device("tpu"):
            layers = [nn.Linear(16384, 16384, bias=False) for _ in range(10)]
        model = nn.Sequential(*layers)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        x = torch.randn(4096, 16384, device="tpu")
        for _ in range(3):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            assert loss.item() == 1.0
        assert torch.tpu.memory_allocated() > 30e9
        assert list(run.reads().values()) == [3]
        del model, layers, optimizer, x, loss
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 1 << 20  # KB


@pytest.mark.parametrize(
    ("dtype", "number"),
    [(torch.float32, 1.0), (torch.int64, 1), (torch.bool, False), (torch.bfloat16, 1.0)],
    ids=str,
)
def test_one_number_is_a_stand_in(dtype: torch.dtype, number: float) -> None:
    with fuse.fake():
        assert torch.randn(4, device="tpu").mean().to(dtype).item() == number


def test_more_than_one_number_is_refused_with_its_shape_and_the_line() -> None:
    with fuse.fake(), pytest.raises(RuntimeError) as caught:
        (torch.ones(2, 3, device="tpu") + 1).tolist()
    assert "float32[2, 3] is read, and a fake run has no values" in str(caught.value)
    assert "test_fake.py" in str(caught.value)
    assert "hint: read single numbers" in str(caught.value)


def test_what_came_from_the_host_is_read_back() -> None:
    with fuse.fake():
        assert torch.tensor([3, 5, 7]).to("tpu").tolist() == [3, 5, 7]


def test_outside_everything_is_as_before() -> None:
    x = torch.arange(4.0).to("tpu")
    with fuse.fake():
        assert x.mean().item() == 1.0
    assert x.mean().item() == 1.5
    assert (x * 2).tolist() == [0.0, 2.0, 4.0, 6.0]


def _calls(run: torch.nn.Module, x: torch.Tensor) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    runtime.watcher = lambda form, sources, results: found.append((form.kind, form.ranks))
    try:
        run(x).sum().backward()
        torch.tpu.synchronize()
    finally:
        runtime.watcher = None
    return found


def test_fsdp_gathers_and_scatters_over_256_ranks() -> None:
    with fuse.fake(ranks=256):
        assert (dist.get_rank(), dist.get_world_size()) == (0, 256)
        with torch.device("tpu"):
            model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))
        for layer in (model[0], model[2], model):
            fully_shard(layer)
        assert model[0].weight.to_local().shape == (2, 512)
        calls = _calls(model, torch.randn(8, 512, device="tpu"))
    assert calls.count(("all_gather", 256)) >= 2
    assert calls.count(("reduce_scatter", 256)) == 2


def test_tensor_parallel_sums_over_the_inner_dimension_of_a_mesh() -> None:
    with fuse.fake(ranks=32):
        mesh = init_device_mesh("tpu", (8, 4), mesh_dim_names=("data", "model"))
        with torch.device("tpu"):
            model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(model, mesh["model"], plan)
        assert model[0].weight.to_local().shape == (64, 64)
        assert ("all_reduce", 4) in _calls(model, torch.randn(8, 64, device="tpu"))


def test_dtensors_of_a_mesh_have_their_shards() -> None:
    with fuse.fake(ranks=8):
        mesh = init_device_mesh("tpu", (8,))
        x = distribute_tensor(torch.randn(64, 16, device="tpu"), mesh, [Shard(0)])
        assert isinstance(x, DTensor)
        assert x.to_local().shape == (8, 16)
        assert x.redistribute(mesh, [Shard(1)]).to_local().shape == (64, 2)
        assert x.full_tensor().shape == (64, 16)


def test_ddp_and_objects_and_host_tensors() -> None:
    with fuse.fake(ranks=4):
        with torch.device("tpu"):
            model = nn.Linear(16, 16)
        wrapped = nn.parallel.DistributedDataParallel(model)
        calls = _calls(wrapped, torch.randn(2, 16, device="tpu"))
        assert calls == [("all_reduce", 4)]
        ones = torch.ones(3)
        found = [torch.zeros(3) for _ in range(4)]
        dist.all_gather(found, ones)
        assert all(torch.equal(one, ones) for one in found)
        objects: list[object] = [None] * 4
        dist.all_gather_object(objects, {"a": 1})
        assert objects == [{"a": 1}] * 4
        dist.barrier()


def test_messages_between_two_ranks_are_refused_at_once() -> None:
    with fuse.fake(ranks=2):
        x = torch.ones(4, device="tpu")
        with pytest.raises(RuntimeError, match="the ranks of a fake run send no messages"):
            dist.recv(x, src=1)


def test_a_second_group_and_no_ranks_are_refused() -> None:
    with pytest.raises(FuseError, match="a fake run has 1 rank or more, not 0"):
        fuse.fake(ranks=0)
    with fuse.fake(ranks=2), pytest.raises(FuseError, match="makes the default process group"):
        fuse.fake(ranks=4).__enter__()


def test_pytorchs_own_way_to_fake_ranks_is_the_same() -> None:
    with fuse.fake():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=64)
        try:
            x = torch.zeros(4, device="tpu")
            dist.all_reduce(x)
            assert x.sum().item() == 1.0
            found = [torch.empty(4, device="tpu") for _ in range(64)]
            dist.all_gather(found, x)
            assert found[63].shape == (4,)
        finally:
            dist.destroy_process_group()


def test_a_step_is_captured_in_the_programs_order() -> None:
    with fuse.fake(ranks=4):
        with torch.device("tpu"):
            model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        for layer in (*model, model):
            fully_shard(layer)
        x = torch.randn(2, 8, device="tpu")
        for _ in range(2):
            model(x).sum().backward()
        step = joined.capture(lambda: model(x).sum().backward()).program
    kinds = [form.kind for form in step.forms()]
    assert kinds[:2] == ["all_gather"] * 2
    assert kinds.count("reduce_scatter") == 2
    assert kinds[-1] == "reduce_scatter"
    known = {value for value, _ in step.inputs}
    for part in step.parts:
        assert known.issuperset(part.reads)
        known.update(part.makes)
    assert all(form.members == (0, 1, 2, 3) for form in step.forms())


def test_a_step_knows_its_ranks_where_no_collective_is_of_all_of_them() -> None:
    with fuse.fake(ranks=8):
        mesh = init_device_mesh("tpu", (4, 2), mesh_dim_names=("shard", "tensor"))
        with torch.device("tpu"):
            model = nn.Linear(16, 16)
        fully_shard(model, mesh=mesh["shard"])
        x = torch.randn(2, 16, device="tpu")
        step = joined.capture(lambda: model(x).sum().backward()).program
    assert {form.members for form in step.forms()} == {(0, 2, 4, 6)}
    assert step.ranks == 8
