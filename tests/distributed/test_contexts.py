"""Attention of distributed tensors and of contexts split over ranks: what the CPU makes of the
whole sequence. PyTorch splits no contexts of CPU tensors, so nothing here is compared with gloo."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel, implicit_replication
from torch.distributed.tensor.experimental._attention import (
    _cp_options,
    context_parallel_unshard,
    set_rotate_method,
)

import fuse
from tests.distributed.ranks import passes

STEPS = 6


def inputs(step: int, length: int, heads: int = 3, groups: int = 0) -> list[torch.Tensor]:
    """Query, key, value and the output's gradient; keys and values have ``groups`` heads."""
    generator = torch.Generator().manual_seed(step)
    counts = (heads, groups or heads, groups or heads, heads)
    return [torch.randn(2, count, length, 8, generator=generator) for count in counts]


def attend(given: list[torch.Tensor], causal: bool, mask: Any = None) -> list[torch.Tensor]:
    """The output, and gradients of query, key and value."""
    leaves = [one.detach().clone().requires_grad_() for one in given[:3]]
    grouped = leaves[0].size(1) != leaves[1].size(1)
    out = F.scaled_dot_product_attention(*leaves, mask, is_causal=causal, enable_gqa=grouped)
    out.backward(given[3])
    assert all(one.grad is not None for one in leaves)
    return [out.detach(), *(one.grad for one in leaves if one.grad is not None)]


def alike(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for got, wanted in zip(found, expected, strict=True):
        assert got.device.type == "tpu"
        torch.testing.assert_close(got.cpu(), wanted, rtol=2e-4, atol=2e-5)


def split(mesh: DeviceMesh, step: int, length: int, causal: bool) -> None:
    """The sequence shared out as PyTorch does it, and put together again."""
    whole = inputs(step, length)
    given = [one.to("tpu") for one in whole]
    with context_parallel(mesh, buffers=given, buffer_seq_dims=[2] * 4):
        assert given[0].size(2) == length // mesh.size()
        parts = attend(given, causal)
        found = context_parallel_unshard(mesh, parts, [2] * 4)
    alike(given, whole)
    alike(found, attend(whole, causal))


def contexts(rank: int, size: int) -> None:
    mesh = init_device_mesh("tpu", (size,))
    before = fuse.stats()["host_fallbacks"]
    for method in ("allgather", "alltoall"):
        set_rotate_method(method)
        for step in range(STEPS):
            split(mesh, step, 4 * size * (1 + step % 2), causal=True)
    _cp_options.enable_load_balance = False  # which is for causal attention alone
    for step in range(STEPS):
        split(mesh, step, 4 * size, causal=bool(step % 2))
    whole = inputs(0, 4 * size, 4, 2)
    given = [one.to("tpu") for one in whole]
    with context_parallel(mesh, buffers=given, buffer_seq_dims=[2] * 4):
        found = context_parallel_unshard(mesh, attend(given, causal=False), [2] * 4)
        # PyTorch's own refusal: its written out attention makes the mask of no DTensor.
        with pytest.raises(RuntimeError, match="got mixed torch.Tensor and DTensor"):
            attend(given, causal=True)
    alike(found, attend(whole, causal=False))
    assert fuse.stats()["host_fallbacks"] == before


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_contexts_split_over_ranks(size: int) -> None:
    passes(contexts, size, "cpu:gloo,tpu:tpu_dist", seconds=170)


def shared(whole: list[torch.Tensor], mesh: DeviceMesh, dim: int) -> list[Any]:
    return [distribute_tensor(one.to("tpu"), mesh, [Shard(dim)]) for one in whole]


def heads(rank: int, size: int) -> None:
    """Each rank has some heads, or some of the batch."""
    mesh = init_device_mesh("tpu", (size,))
    for step, dim in ((step, dim) for step in range(STEPS) for dim in (0, 1)):
        whole = inputs(step, 7, heads=4)
        found: list[Any] = attend(shared(whole, mesh, dim), causal=bool(step % 2))
        assert all(one.placements == (Shard(dim),) for one in found)
        alike([one.full_tensor() for one in found], attend(whole, causal=bool(step % 2)))


def grouped_heads(rank: int, size: int) -> None:
    """Fewer heads of keys than of queries, each rank some of them, or none that is whole."""
    mesh = init_device_mesh("tpu", (size,))
    for (queries, keys), dim in (((4, 2), 1), ((4, 2), 0), ((12, 3), 0)):
        whole = inputs(dim, 7, queries, keys)
        found: list[Any] = attend(shared(whole, mesh, dim), causal=False)
        alike([one.full_tensor() for one in found], attend(whole, causal=False))
        with pytest.raises(RuntimeError, match="got mixed torch.Tensor and DTensor"):
            attend(shared(whole, mesh, dim), causal=True)
        with implicit_replication():
            found = attend(shared(whole, mesh, dim), causal=True)
        alike([one.full_tensor() for one in found], attend(whole, causal=True))
    given = shared(inputs(0, 7, 12, 3), mesh, 1)
    with pytest.raises(RuntimeError, match="evenly"):
        attend(given, causal=False)


def masked(rank: int, size: int) -> None:
    """A mask or a bias without a gradient, of each head and of all."""
    mesh = init_device_mesh("tpu", (size,))
    whole, bias = inputs(0, 7, 4), torch.randn(2, 4, 7, 7)
    dist.broadcast(bias, 0)
    masks: list[tuple[torch.Tensor, Any]] = [(bias, None), (bias[0, 0], Replicate())]
    masks.append((torch.ones(7, 7).tril().bool(), Replicate()))
    for (mask, place), dim in ((one, dim) for one in masks for dim in (0, 1)):
        held = distribute_tensor(mask.to("tpu"), mesh, [place or Shard(dim)])
        found: list[Any] = attend(shared(whole, mesh, dim), False, held)
        alike([one.full_tensor() for one in found], attend(whole, False, mask))


@pytest.mark.slow
@pytest.mark.parametrize("function", [heads, grouped_heads, masked])
def test_heads_split_over_ranks(function: Any) -> None:
    passes(function, 2, "cpu:gloo,tpu:tpu_dist", seconds=170)
