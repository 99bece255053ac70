"""Every collective on the device, against the same call on CPU tensors with gloo."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import fuse
from tests.distributed.ranks import passes
from tests.marks import slow_but

OPS = dist.ReduceOp
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
)
Shapes = tuple[tuple[int, ...], ...]
SOME: Shapes = ((2, 5),)
OTHERS: Shapes = ((3,), (200, 300))
"""The last is longer than what goes with the check."""


def tensors(rank: int, dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * seed + rank)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    return torch.randint(1, 4, shape, generator=generator).to(dtype)


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.device.type == "tpu"
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0)


def everybodys(size: int, dtype: torch.dtype, shape: tuple[int, ...]) -> list[torch.Tensor]:
    return [tensors(rank, dtype, shape) for rank in range(size)]


def expected_reduction(op: Any, all_: list[torch.Tensor]) -> torch.Tensor:
    stacked = torch.stack(all_)
    if op in (OPS.SUM, OPS.AVG):
        total = stacked.sum(0, dtype=stacked.dtype)
        if op == OPS.SUM:
            return total
        whole = not stacked.dtype.is_floating_point
        return total.div(len(all_), rounding_mode="trunc" if whole else None).to(stacked.dtype)
    result = all_[0].clone()
    for other in all_[1:]:
        result = {
            OPS.PRODUCT: torch.mul,
            OPS.MIN: torch.minimum,
            OPS.MAX: torch.maximum,
            OPS.BAND: torch.bitwise_and,
            OPS.BOR: torch.bitwise_or,
            OPS.BXOR: torch.bitwise_xor,
        }[op](result, other)
    return result


def reductions(
    rank: int, size: int, shapes: Shapes = SOME, dtypes: Sequence[torch.dtype] = DTYPES
) -> None:
    for dtype, op, shape in itertools.product(
        dtypes,
        (OPS.SUM, OPS.AVG, OPS.PRODUCT, OPS.MIN, OPS.MAX, OPS.BAND, OPS.BOR, OPS.BXOR),
        shapes,
    ):
        if op in (OPS.BAND, OPS.BOR, OPS.BXOR) and dtype.is_floating_point:
            continue
        all_ = everybodys(size, dtype, shape)
        expected = expected_reduction(op, all_)
        mine = all_[rank].to("tpu")
        dist.all_reduce(mine, op)
        same(mine, expected)
        mine = all_[rank].to("tpu")
        dist.reduce(mine, size - 1, op)
        if rank == size - 1:
            same(mine, expected)
        whole = torch.cat([all_[rank]] * size).to("tpu")
        share = torch.empty(shape, dtype=dtype, device="tpu")
        dist.reduce_scatter_tensor(share, whole, op)
        same(share, expected)
        share = torch.empty(shape, dtype=dtype, device="tpu")
        dist.reduce_scatter(share, [all_[rank].to("tpu")] * size, op)
        same(share, expected)


def reductions_of_other_sizes(rank: int, size: int) -> None:
    reductions(rank, size, OTHERS)


def reductions_of_some_dtypes(rank: int, size: int) -> None:
    reductions(rank, size, dtypes=(torch.float32, torch.bfloat16, torch.uint8, torch.int64))


@pytest.mark.parametrize(
    "function", slow_but([reductions_of_some_dtypes], [reductions_of_some_dtypes, reductions])
)
def test_reductions(function: Any) -> None:
    passes(function, 2)


def moves(rank: int, size: int, shapes: Shapes = SOME) -> None:
    for dtype, shape in itertools.product(
        (*DTYPES, torch.bool, torch.complex64, torch.float8_e4m3fn), shapes
    ):
        all_ = everybodys(size, dtype, shape)
        mine = all_[rank].to("tpu")
        for root in range(size):
            got = all_[rank].to("tpu")
            dist.broadcast(got, root)
            same(got, all_[root])
            outs = [torch.empty_like(mine) for _ in range(size)] if rank == root else None
            dist.gather(mine, outs, root)
            for out, expected in zip(outs or [], all_, strict=False):
                same(out, expected)
            got = torch.empty_like(mine)
            dist.scatter(got, [t.to("tpu") for t in all_] if rank == root else None, root)
            same(got, all_[rank])
        outs = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(outs, mine)
        for out, expected in zip(outs, all_, strict=True):
            same(out, expected)
        whole = torch.empty((size * shape[0], *shape[1:]), dtype=dtype, device="tpu")
        dist.all_gather_into_tensor(whole, mine)
        same(whole, torch.cat(all_))
        outs = [torch.empty_like(mine) for _ in range(size)]
        dist.all_to_all(outs, [mine] * size)
        for out, expected in zip(outs, all_, strict=True):
            same(out, expected)
        sent = torch.cat([all_[rank]] * size).to("tpu")
        dist.all_to_all_single(whole, sent)
        same(whole, torch.cat(all_))
    # Rows that differ from rank to rank: this rank sends r + 1 rows to rank r.
    rows = [r + 1 for r in range(size)]
    sent = torch.full((sum(rows), 3), float(rank), device="tpu")
    got = torch.empty(size * (rank + 1), 3, device="tpu")
    dist.all_to_all_single(got, sent, [rank + 1] * size, rows)
    same(got, torch.arange(float(size)).repeat_interleave(rank + 1)[:, None].expand(-1, 3))


def moves_of_other_sizes(rank: int, size: int) -> None:
    moves(rank, size, OTHERS)


@pytest.mark.slow
def test_moves_of_every_dtype() -> None:
    passes(moves, 2)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 4])
@pytest.mark.parametrize("function", [reductions, moves])
def test_every_collective_on_more_ranks(function: Any, size: int) -> None:
    passes(function, size, seconds=300)


@pytest.mark.slow
@pytest.mark.parametrize("function", [reductions_of_other_sizes, moves_of_other_sizes])
def test_other_sizes(function: Any) -> None:
    passes(function, 2)


@pytest.mark.slow
def test_three_ranks() -> None:
    passes(several, 3)


def several(rank: int, size: int) -> None:
    mine = torch.arange(100_000.0, device="tpu") + rank
    dist.all_reduce(mine)
    same(mine, torch.arange(100_000.0) * size + sum(range(size)))
    groups = [dist.new_group([0, 1]), dist.new_group([1, 2])]  # they overlap
    for group, members in zip(groups, ((0, 1), (1, 2)), strict=True):
        if rank in members:
            part = torch.ones(4, device="tpu") * rank
            dist.all_reduce(part, group=group)
            same(part, torch.full((4,), float(sum(members))))
    dist.barrier()
    outs = [torch.empty(2, device="tpu") for _ in range(size)]
    dist.all_gather(outs, torch.full((2,), float(rank), device="tpu"))
    same(torch.stack(outs), torch.arange(3.0)[:, None].expand(3, 2))


def forms(rank: int, size: int) -> None:
    # Views of larger tensors, other strides, an offset.
    base = torch.zeros(4, 6, device="tpu")
    dist.all_reduce(base[1:3].fill_(rank + 1))
    same(base, torch.tensor([0.0, 3.0, 3.0, 0.0])[:, None].expand(4, 6))
    turned = torch.arange(6.0, device="tpu").reshape(2, 3).t()
    dist.all_reduce(turned)
    same(turned, 2 * torch.arange(6.0).reshape(2, 3).t())
    # Scalars, empty tensors, memory never written.
    scalar = torch.tensor(float(rank), device="tpu")
    dist.all_reduce(scalar)
    assert scalar.item() == 1.0
    dist.all_reduce(torch.empty(0, device="tpu"))
    # Asynchronous: works, futures, and what is chained to them.
    first, second = torch.ones(3, device="tpu"), torch.ones(50_000, device="tpu")
    works = [dist.all_reduce(t, async_op=True) for t in (first, second)]
    chained = works[1].get_future().then(lambda future: future.value()[0] + 1)
    same(chained.wait(), torch.full((50_000,), 3.0))
    assert all(work.wait() for work in works) and works[0].is_completed()
    same(first, torch.full((3,), 2.0))

    def again(future: Any) -> Any:
        inner = torch.ones(2, device="tpu")
        dist.all_reduce(inner, async_op=True).get_future().wait()
        return inner

    work = dist.all_reduce(torch.ones(1, device="tpu"), async_op=True)
    same(work.get_future().then(again).wait(), torch.full((2,), 2.0))
    # What is computed from a result before anybody has waited for it.
    late = torch.ones(3, device="tpu")
    work = dist.all_reduce(late, async_op=True)
    doubled = late * 2
    same(doubled, torch.full((3,), 4.0))
    work.wait()
    # Coalesced.
    some = [torch.ones(3, device="tpu"), torch.ones(2, 2, device="tpu")]
    with dist._coalescing_manager(device=torch.device("tpu"), async_ops=True) as manager:
        for one in some:
            dist.all_reduce(one)
    manager.wait()
    for one in some:
        same(one, torch.full(one.shape, 2.0))
    outs = [torch.empty(6, device="tpu"), torch.empty(4, device="tpu")]
    with dist._coalescing_manager(device=torch.device("tpu")):
        for out, width in zip(outs, (3, 2), strict=True):
            dist.all_gather_into_tensor(out, torch.full((width,), float(rank), device="tpu"))
    same(outs[0], torch.tensor([0.0, 0, 0, 1, 1, 1]))
    dist.all_reduce_coalesced(some)
    same(some[0], torch.full((3,), 4.0))
    # Multiplied before it is added.
    mine = torch.ones(4, device="tpu")
    dist.all_reduce(mine, dist._make_nccl_premul_sum(0.5))
    same(mine, torch.ones(4))
    # A gradient, complex numbers.
    values = torch.full((3,), 1j, device="tpu")
    dist.all_reduce(values)
    same(values, torch.full((3,), 2j))


@pytest.mark.slow
def test_forms() -> None:
    passes(forms, 2)


def parts(rank: int, size: int) -> None:
    """What is written to is a part of a tensor, and ranks' parts have sizes of their own; again and
    again, for a stream that is known runs in other ways than one that is not."""
    lengths = [2 + other for other in range(size)]
    total = sum(lengths)
    for step in range(8):
        mine = torch.full((lengths[rank], 3), float(rank + step), device="tpu")
        expected = torch.tensor([float(other + step) for other in range(size)])
        base = torch.zeros(4, 6, device="tpu")
        dist.all_reduce(base[1:3].fill_(rank + 1))
        same(base[1:3], torch.full((2, 6), float(sum(range(1, size + 1)))))
        same(base[0], torch.zeros(6))
        out = torch.empty(2 * size, 3, device="tpu")
        dist.all_gather(list(out.chunk(size)), mine[:2])
        same(out, expected.repeat_interleave(2)[:, None].expand(-1, 3))
        out = torch.empty(total, 3, device="tpu")
        work = dist.all_gather(list(out.split(lengths)), mine, async_op=bool(step % 2))
        if work is not None:
            work.wait()
        same(out, expected.repeat_interleave(torch.tensor(lengths))[:, None].expand(-1, 3))
        share = torch.empty(lengths[rank], 3, device="tpu")
        whole = torch.full((total, 3), float(rank + step), device="tpu")
        dist.reduce_scatter(share, list(whole.split(lengths)))
        same(share, torch.full((lengths[rank], 3), float(expected.sum())))
        peer, source = (rank + 1) % size, (rank - 1) % size
        got = torch.zeros(3, 3, device="tpu")
        ops = [
            dist.P2POp(dist.irecv, got[1], source),
            dist.P2POp(dist.isend, mine[0].clone(), peer),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        same(got, torch.tensor([0.0, source + step, 0.0])[:, None].expand(3, 3))


@pytest.mark.parametrize(
    ("size", "tier", "form"),
    [
        (2, "auto", "auto"),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in ((3, "compiled", "auto"), (2, "auto", "xla"))
        ),
    ],
)
def test_parts_of_tensors(size: int, tier: str, form: str) -> None:
    passes(parts, size, seconds=200, FUSE_TIER=tier, FUSE_COLLECTIVES=form)


def profiled(rank: int, size: int) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(3):
            dist.all_reduce(torch.ones(4, device="tpu"), async_op=True).wait()
    found = [event for event in profile.events() if event.name == "tpu_dist:all_reduce"]
    assert len(found) == 3 and all(event.is_async for event in found), profile.events()


@pytest.mark.slow
def test_the_profiler_notes_collectives() -> None:
    passes(profiled, 2)


def others(rank: int, size: int) -> None:
    # Point to point, in both directions at once.
    peer = 1 - rank
    got = torch.empty(5, device="tpu")
    ops = [
        dist.P2POp(dist.isend, torch.full((5,), float(rank), device="tpu"), peer),
        dist.P2POp(dist.irecv, got, peer),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(got, torch.full((5,), float(peer)))
    if rank == 0:
        dist.send(torch.arange(3, device="tpu"), 1, tag=7)
    else:
        got = torch.empty(3, dtype=torch.int64, device="tpu")
        assert dist.recv(got, tag=7) == 0
        same(got, torch.arange(3))
    # Objects, barriers, CPU tensors.
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]
    one: list[Any] = ["here" if rank == 0 else None]
    dist.broadcast_object_list(one, 0)
    assert one == ["here"]
    dist.barrier()
    dist.group.WORLD.monitored_barrier()  # dist.monitored_barrier takes gloo alone
    host = torch.ones(3)
    dist.all_reduce(host)
    assert host.tolist() == [2.0] * 3 and host.device.type == "cpu"
    # A tensor that is no result keeps its value where it is the root's.
    mine = torch.full((2,), float(rank), device="tpu")
    dist.broadcast(mine, 0)
    assert mine.tolist() == [0.0, 0.0]
    # A second group, and after its end the first still works.
    group = dist.new_group([0, 1])
    dist.all_reduce(mine, group=group)
    dist.destroy_process_group(group)
    dist.all_reduce(mine)
    cuts = fuse.stats()["cuts"]
    assert cuts.get("synchronize", 0) == 0, cuts


NAMES = ("tpu_dist", "cpu:gloo,tpu:tpu_dist", "fuse")


@pytest.mark.parametrize("backend", slow_but(["fuse"], [None, *NAMES]))
def test_other_calls(backend: str | None) -> None:
    passes(others, 2, backend)


def mesh_first(rank: int, size: int) -> None:
    """The mesh starts the device, which joins a group that was made without a backend."""
    before = dist.group.WORLD.group_name
    mesh = init_device_mesh("tpu", (size, 1), mesh_dim_names=("data", "tensor"))
    assert dist.group.WORLD.group_name == before
    mine = torch.ones(2, device="tpu")
    for axis, expected in (("data", 2.0), ("tensor", 2.0)):
        dist.all_reduce(mine, group=mesh[axis].get_group())
        same(mine, torch.full((2,), expected))


@pytest.mark.slow
def test_a_mesh_starts_the_device() -> None:
    passes(mesh_first, 2)


def splits(rank: int, size: int) -> None:
    dist.init_process_group(device_id=torch.device("tpu:0"), timeout=timedelta(seconds=60))
    part = dist.split_group(split_ranks=[[0], [1]])
    mine = torch.ones(2, device="tpu")
    dist.all_reduce(mine, group=part)
    same(mine, torch.ones(2))
    whole = dist.split_group(split_ranks=[[0, 1]])
    dist.all_reduce(mine, group=whole)
    same(mine, torch.full((2,), 2.0))


@pytest.mark.slow
def test_a_group_is_split() -> None:
    passes(splits, 2, "none")


SLOW = (
    reductions,
    moves,
    reductions_of_other_sizes,
    moves_of_other_sizes,
)


@pytest.mark.parametrize("function", slow_but([forms], [forms, *SLOW]))
def test_the_same_as_programs_of_the_runtime(function: Any) -> None:
    passes(function, 2, FUSE_COLLECTIVES="xla", seconds=200.0)
