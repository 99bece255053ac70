"""Collectives of flat buffers, taken apart: the same numbers, by matrices that stay as they lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import fuse
from fuse.backends.decomposed import Decompositions
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.ranks.joined import function
from fuse.backends.xla.ranks.programs import AXIS, groups_of
from fuse.backends.xla.ranks.step import Joined
from fuse.backends.xla.ranks.unpack import unpacked
from fuse.backends.xla.rules.registry import RULES
from fuse.distributed import joined

RANKS = 4


def computed(step: Joined) -> list[np.ndarray]:
    """The outputs on all ranks, from random inputs, by ``vmap`` in the place of devices."""
    decompositions = Decompositions(lambda name: name in RULES)
    # Not the CPU's, whose reduce-scatters are exchanges.
    platform = Platform("accelerator")
    run = function(step, platform, decompositions, RANKS)
    numbers = np.random.default_rng(0)
    words = [np.zeros((RANKS, 1, chunk.scalars, 2), np.uint32) for chunk in step.chunks()]
    given = []
    for _, spec in step.inputs:
        drawn = numbers.integers(0, 4, (RANKS, 1, *spec.shape))
        scaled = drawn + 0.25 if spec.dtype.startswith(("float", "bfloat")) else drawn
        given.append(scaled.astype(spec.dtype))
    with jax.enable_x64(True):
        made = jax.vmap(run, axis_name=AXIS)(*words, *given)
    return [np.asarray(one).astype(np.float64) for one in made]


def captured(make: Callable[[], Callable[[], object]]) -> Joined:
    """A step in a fake run, after two that make an optimizer's averages."""
    with fuse.fake(ranks=RANKS):
        step = make()
        for _ in range(2):
            step()
        found: Joined = joined.capture(step).program
    return found


def _model() -> nn.Sequential:
    with torch.device("tpu"):
        return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 8))


def _training(model: nn.Module, clip: bool = False) -> Callable[[], object]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    x = torch.randn(2, 8, device="tpu")

    def step() -> None:
        model(x).square().mean().backward()
        if clip:
            for parameter in model.parameters():
                assert parameter.grad is not None
                grad: Any = parameter.grad
                getattr(grad, "_local_tensor", grad).mul_(0.5)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _sharded(dtype: torch.dtype | None, clip: bool) -> Callable[[], object]:
    model = _model()
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for layer in (model[0], model[3], model):
        fully_shard(layer, mp_policy=policy)
    return _training(model, clip)


@pytest.mark.parametrize("clip", [False, True], ids=["plain", "scaled in place"])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=str)
def test_fsdp_moves_matrices_and_computes_the_same(dtype: torch.dtype | None, clip: bool) -> None:
    step = captured(lambda: _sharded(dtype, clip))
    apart = unpacked(step)
    flat = [form for form in step.forms() if form.kind != "all_reduce"]
    rows = [form for form in apart.forms() if form.rows]
    assert len(flat) >= 5
    assert len(rows) == len(flat)
    assert {form.kind for form in rows} == {"all_gather", "reduce_scatter"}
    shapes = {shape for part in apart.parts for shape in part.shapes}
    assert {(16, 8), (8, 16), (4, 8), (2, 16)} <= shapes
    for ours, theirs in zip(computed(apart), computed(step), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_ddp_computes_the_same() -> None:
    step = captured(lambda: _training(nn.parallel.DistributedDataParallel(_model())))
    for ours, theirs in zip(computed(unpacked(step)), computed(step), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_rows_that_ranks_do_not_divide_stay_in_their_buffer() -> None:
    def make() -> Callable[[], object]:
        with torch.device("tpu"):
            model = nn.Linear(8, 6)  # 6 rows over 4 ranks
        fully_shard(model)
        return _training(model)

    step = captured(make)
    apart = unpacked(step)
    assert not any(form.rows for form in apart.forms() if form.kind == "reduce_scatter")
    for ours, theirs in zip(computed(apart), computed(step), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_what_is_copied_to_several_places_stays_in_its_buffer() -> None:
    def make() -> Callable[[], object]:
        one, rest = torch.randn(1, device="tpu"), torch.randn(4, device="tpu")
        made = torch.empty(4, device="tpu")

        def step() -> None:
            whole = torch.empty(8, device="tpu")
            whole[:4].copy_(one)
            whole[4:].copy_(rest)
            torch.distributed.all_reduce(whole)
            made.copy_(whole[:4] + whole[4:])

        return step

    step = captured(make)
    assert unpacked(step) == step


def test_pieces_of_a_sum_are_summed_as_they_lie() -> None:
    def make() -> Callable[[], object]:
        first, second = torch.randn(2, 3, device="tpu"), torch.randn(4, device="tpu")

        def step() -> None:
            whole = torch.empty(10, device="tpu")
            whole[:6].copy_(first.view(-1))
            whole[6:].copy_(second)
            torch.distributed.all_reduce(whole)
            first.copy_(whole[:6].view(2, 3))
            second.copy_(whole[6:] * 2)

        return step

    step = captured(make)
    apart = unpacked(step)
    (form,) = apart.forms()
    assert form.rows
    assert form.sources == (6, 4)
    for ours, theirs in zip(computed(apart), computed(step), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_result_that_is_kept_stays_whole() -> None:
    def make() -> Callable[[], object]:
        x, kept = torch.randn(8, device="tpu"), []

        def step() -> None:
            whole = torch.cat([x, x])
            torch.distributed.all_reduce(whole)
            kept.append(whole)

        return step

    step = captured(make)
    assert unpacked(step) == step


@pytest.mark.parametrize(
    ("members", "groups"),
    [
        ((0, 1), ((0, 1), (2, 3), (4, 5), (6, 7))),
        ((0, 4), ((0, 4), (1, 5), (2, 6), (3, 7))),
        ((0, 2, 4, 6), ((0, 2, 4, 6), (1, 3, 5, 7))),
        (tuple(range(8)), ()),
    ],
)
def test_groups_tile_the_ranks(
    members: tuple[int, ...], groups: tuple[tuple[int, ...], ...]
) -> None:
    assert groups_of(members, 8) == groups


def test_ranks_that_are_no_part_of_a_mesh_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the ranks \[0, 1, 3\] are no part of a mesh of 6"):
        groups_of((0, 1, 3), 6)
