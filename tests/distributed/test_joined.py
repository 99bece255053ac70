"""A step captured as one program of all ranks gives what its parts gave one after another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fuse.distributed import agreement, joined, training
from fuse.errors import FuseError
from tests.distributed.programs import Model, batch
from tests.distributed.ranks import passes

SETTINGS = {"FUSE_COLLECTIVES": "xla", "FUSE_TIER": "compiled"}


def stepper(model: nn.Module, rank: int) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    numbers = iter(range(100))

    def step() -> None:
        tokens, targets = batch(rank, next(numbers), "tpu")
        F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def agrees(captured: joined.Captured, kinds: set[str]) -> None:
    """All ranks have the same program, whose collectives are of these kinds, and it is right."""
    joined.agreed(captured)
    assert {form.kind for form in captured.program.forms()} == kinds
    assert captured.program.outputs
    for found, expected in zip(joined.run(captured), captured.got, strict=True):
        np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=2e-4, atol=2e-5)


def ddp(rank: int, size: int) -> None:
    torch.manual_seed(0)
    step = stepper(DistributedDataParallel(Model().to("tpu"), bucket_cap_mb=0.002), rank)
    for _ in range(6):
        step()
    captured = joined.capture(step, keep=True)
    assert len(captured.program.forms()) > 1
    agrees(captured, {"all_reduce"})


def sharded(rank: int, size: int) -> None:
    """A weight of which each rank holds a part, gathered for use; its gradient is scattered."""
    part = torch.full((3, 8), float(rank + 1), device="tpu")

    def step() -> None:
        whole = torch.empty(3 * size, 8, device="tpu")
        dist.all_gather_into_tensor(whole, part)
        whole.requires_grad_()
        batch = torch.arange(32.0, device="tpu").reshape(4, 8) * 0.01
        torch.tanh(batch @ whole.t()).sum().backward()
        share = torch.empty_like(part)
        dist.reduce_scatter_tensor(share, whole.grad, dist.ReduceOp.AVG)
        swapped = torch.empty(2, 4, device="tpu")
        dist.all_to_all_single(swapped, share.flatten()[:8].reshape(2, 4).contiguous())
        dist.broadcast(swapped, 1)
        part.sub_(share * swapped.mean())

    for _ in range(4):
        step()
    captured = joined.capture(step, keep=True)
    agrees(captured, {"all_gather", "reduce_scatter", "all_to_all", "broadcast"})


def differing(rank: int, size: int) -> None:
    x = torch.arange(4.0, device="tpu")

    def step() -> None:
        y = x * 2 if rank == 0 else x + 3
        dist.all_reduce(y)
        assert y.tolist() == (torch.arange(4.0) * 3 + 3).tolist()

    captured = joined.capture(step)
    for group in (None, dist.new_group([0, 1])):
        with pytest.raises(FuseError, match=r"rank 1 and rank 0 have captured different") as error:
            joined.agreed(captured, group)
        lines = str(error.value).splitlines()
        assert "= mul" in lines[1] and lines[1].startswith("  rank 0: ") and ".py:" in lines[1]
        assert "= add" in lines[2] and lines[2].startswith("  rank 1: ")
    for alone in (dist.new_group([0]), dist.new_group([1])):
        joined.agreed(captured, alone)  # who is not of the group has nothing to say

    def of_the_root() -> None:
        dist.reduce(x.clone(), 0)

    with pytest.raises(FuseError, match="reduce cannot be part of a joined step"):
        joined.capture(of_the_root)


def trainer(rank: int, differs: bool = False) -> tuple[Any, list[torch.Tensor]]:
    """A step of DDP, and the tensors that it changes."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Model().to("tpu"), bucket_cap_mb=0.002)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)  # counts on the device

    def step(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        (loss * 1.0 if differs and rank else loss).backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for at in range(3):
        step(*batch(rank, at, "tpu"))
    kept = [value for one in optimizer.state.values() for value in one.values()]
    return step, [*model.parameters(), *kept]


def trained(rank: int, size: int) -> None:
    """Losses and what is left behind are those of the steps as they are."""
    batches = [batch(rank, at, "tpu") for at in range(3, 20)]
    step, expected = trainer(rank)
    wanted = [step(*one).item() for one in batches]
    step, state = trainer(rank)
    called: list[int] = []

    def noted(*given: torch.Tensor) -> torch.Tensor:
        called.append(1)
        return step(*given)

    found = list(training.train(noted, batches, state))
    assert 3 <= len(called) < 10, called  # the others were joined
    torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted), rtol=2e-4, atol=2e-5)
    for one, other in zip(state, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other.cpu(), rtol=2e-4, atol=2e-5)
    step(*batches[0])  # and it goes on from there
    with pytest.raises(FuseError, match="rank 1 and rank 0 have captured different steps"):
        list(training.train(*trainer(rank, differs=True)[:1], batches, state))


def descended(rank: int, size: int, how: str) -> tuple[list[float], list[float]]:
    """Losses and the weight of a descent in which rank 1 has two batches more than rank 0."""
    weight = torch.ones(4, device="tpu")
    alone: list[bool] = []

    def step(x: torch.Tensor) -> torch.Tensor:
        loss, gradient = (weight * x).sum(), x * 2
        if not alone:
            dist.all_reduce(gradient)
        weight.sub_(0.01 * gradient)
        return loss

    def batches() -> Iterator[tuple[torch.Tensor]]:
        for at in range(12 + 2 * rank):
            if at >= 12:
                alone.append(True)
            yield (torch.full((4,), float(at + rank), device="tpu"),)

    if how == "plain":
        losses = [step(*one).item() for one in batches()]
    else:
        losses = list(training.train(step, batches(), [weight]))
    return losses, weight.tolist()


def ended(rank: int, size: int) -> None:
    """Who has batches left when another has none runs them as they are."""
    found, expected = (descended(rank, size, how) for how in ("joined", "plain"))
    assert len(found[0]) == 12 + 2 * rank
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)
    x, numbers = torch.ones(4, device="tpu"), iter(range(100))

    def changing(given: torch.Tensor) -> torch.Tensor:
        y = given * (1.5 + next(numbers))
        dist.all_reduce(y)
        return y.sum()

    with pytest.raises(FuseError, match="numbers of the host that change"):
        list(training.train(changing, [(x,)] * 20, []))


def test_the_first_difference_is_said() -> None:
    same, ours, theirs = ("a", "a # n.py:1"), ("b", "b # n.py:2"), ("c", "c # n.py:3")
    text = agreement.difference([[same, ours], [same, ours], [same], [same, theirs]], [0, 2, 4, 6])
    assert "ranks 4, 6 and rank 0 have captured different" in text and "place 1" in text
    assert "  rank 2: b # n.py:2\n  rank 4: nothing: its step has ended\n  rank 6: c #" in text


def disagreeing(rank: int, size: int) -> None:
    """In every group, each of its ranks in turn has another program."""

    def program(what: str) -> Any:
        part = SimpleNamespace(what=what, reads=(0,), makes=(1,), shapes=((2,),))
        return SimpleNamespace(parts=[part], inputs=(0,), outputs=(1,), shapes=((2,),))

    for count in (2, 3):
        for ranks in itertools.combinations(range(size), count):
            group = dist.new_group(list(ranks))
            for odd in ranks:
                mine = program("sum" if rank == odd else "product")
                if rank not in ranks:
                    agreement.agree(mine, agreement.digest(mine), group)
                    continue
                with pytest.raises(FuseError) as error:
                    agreement.agree(mine, agreement.digest(mine), group)
                head, *lines = str(error.value).splitlines()[: count + 1]
                others = [one for one in ranks[1:] if (one == odd) != (ranks[0] == odd)]
                names = f"rank{'s'[: len(others) - 1]} {', '.join(map(str, others))}"
                assert f"{names} and rank {ranks[0]} have captured different steps" in head, head
                assert [line.split(":")[0].strip() for line in lines] == [
                    f"rank {r}" for r in ranks
                ]
                assert [line.endswith(": sum") for line in lines] == [one == odd for one in ranks]


def test_a_group_that_disagrees_names_its_own_ranks() -> None:
    passes(disagreeing, 3, "gloo", seconds=60)


@pytest.mark.slow
@pytest.mark.parametrize("function", [ddp, sharded, differing, trained, ended])
def test_joined(function: Any) -> None:
    passes(function, 2, "cpu:gloo,tpu:tpu_dist", seconds=150, **SETTINGS)
