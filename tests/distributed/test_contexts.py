"""Attention of distributed tensors and of contexts split over ranks: what the CPU makes of the
whole sequence. PyTorch splits no contexts of CPU tensors, so nothing here is compared with gloo."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import (
    _cp_options,
    context_parallel_unshard,
    set_rotate_method,
)

import fuse
from tests.distributed.ranks import passes

STEPS = 6


def inputs(step: int, length: int, heads: int = 3) -> list[torch.Tensor]:
    """Query, key, value and the output's gradient."""
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(2, heads, length, 8, generator=generator) for _ in range(4)]


def attend(given: list[torch.Tensor], causal: bool) -> list[torch.Tensor]:
    """The output, and gradients of query, key and value."""
    leaves = [one.detach().clone().requires_grad_() for one in given[:3]]
    out = F.scaled_dot_product_attention(*leaves, is_causal=causal)
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
    assert fuse.stats()["host_fallbacks"] == before


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_contexts_split_over_ranks(size: int) -> None:
    passes(contexts, size, "cpu:gloo,tpu:tpu_dist", seconds=170)


def heads(rank: int, size: int) -> None:
    """Each rank has some heads, or some of the batch."""
    mesh = init_device_mesh("tpu", (size,))
    for step, dim in ((step, dim) for step in range(STEPS) for dim in (0, 1)):
        whole = inputs(step, 7, heads=4)
        given: list[Any] = [distribute_tensor(one.to("tpu"), mesh, [Shard(dim)]) for one in whole]
        found: list[Any] = attend(given, causal=bool(step % 2))
        assert all(one.placements == (Shard(dim),) for one in found)
        alike([one.full_tensor() for one in found], attend(whole, causal=bool(step % 2)))


@pytest.mark.slow
def test_heads_split_over_ranks() -> None:
    passes(heads, 2, "cpu:gloo,tpu:tpu_dist", seconds=170)
