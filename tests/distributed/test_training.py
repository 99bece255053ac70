"""Loops that train by joined steps: what is given back, which batches fit, what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fuse.device import lazy
from fuse.distributed import joined, training
from fuse.errors import FuseError
from tests.distributed.ranks import passes

SETTINGS = {"FUSE_COLLECTIVES": "xla", "FUSE_TIER": "compiled"}
GROUP = "cpu:gloo,tpu:tpu_dist"
Batch = tuple[torch.Tensor, ...]
Step = Callable[..., torch.Tensor]


def batches(count: int = 9) -> list[Batch]:
    return [
        (torch.arange(6.0, device="tpu").reshape(2, 3) * 0.1 + 0.1 * at,) for at in range(count)
    ]


def descent(weight: torch.Tensor) -> Step:
    def step(given: torch.Tensor) -> torch.Tensor:
        x = given.float()
        loss, gradient = (weight * x).square().sum(), (2 * weight * x * x).sum_to_size(weight.shape)
        dist.all_reduce(gradient)
        weight.sub_(0.01 * gradient)
        return loss

    return step


def trains(make: Callable[[], tuple[Step, list[torch.Tensor]]], given: list[Batch]) -> int:
    """Losses and state are those of the steps as they are; how many were called, not joined."""
    (step, expected), (again, state) = make(), make()
    wanted, called = [step(*one).item() for one in given], []

    def noted(*one: torch.Tensor) -> torch.Tensor:
        called.append(1)
        return again(*one)

    found = list(training.train(noted, given, state))
    torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted), rtol=2e-4, atol=2e-5)
    for one, other in zip(state, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other.cpu(), rtol=2e-4, atol=2e-5)
    return len(called)


def weight(how: str) -> tuple[Step, list[torch.Tensor]]:
    """A weight that is not all of its memory in row-major order."""
    flat = torch.linspace(0.1, 1.0, 10, device="tpu")
    made = {
        "transposed": lambda: flat[:6].clone().view(3, 2).t(),
        "a part": lambda: flat[2:8].view(2, 3),
        "whole": lambda: flat[2:8].clone().view(2, 3),
    }[how]()
    return descent(made), [made] if how != "a part" else [made, flat]


def scheduled() -> tuple[Step, list[torch.Tensor]]:
    """A rate that falls by what the step counts on the device."""
    one, count = torch.ones(3, device="tpu"), torch.zeros((), device="tpu")

    def step(x: torch.Tensor) -> torch.Tensor:
        loss, gradient = (one * x).square().sum(), (2 * one * x * x).sum(0)
        dist.all_reduce(gradient)
        one.sub_(torch.where(count >= 6, 0.001, 0.01) * gradient)
        count.add_(1)
        return loss

    return step, [one, count]


def given_back(rank: int, size: int) -> None:
    assert trains(scheduled, batches()) < 6
    for how in ("transposed", "a part", "whole"):
        assert trains(lambda how=how: weight(how), batches()) < 6  # type: ignore[misc]


def normed(buffers: bool, layout: torch.memory_format) -> tuple[Step, list[torch.Tensor]]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to("tpu").to(memory_format=layout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer ones call it forward_sync_buffers
        model = DistributedDataParallel(net, broadcast_buffers=buffers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).sin().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step, [*net.parameters(), *net.buffers()]


def normalised(rank: int, size: int) -> None:
    """Buffers that each rank sends are one rank's alone to join: the root copies nothing back."""
    given = [(torch.randn(4, 3, 5, 5).to("tpu"),) for _ in range(9)]
    last = torch.channels_last
    assert trains(lambda: normed(size == 1, last), given) < 7
    if size > 1:
        step, state = normed(True, torch.contiguous_format)
        with pytest.raises(FuseError, match="rank 1 and rank 0 have captured different steps"):
            list(training.train(step, given, state))


def other_batches(rank: int, size: int) -> None:
    """All go on unjoined when one rank's batch is no longer like those that were captured."""

    def make(*shape: int) -> tuple[Step, list[torch.Tensor]]:
        one = torch.ones(shape, device="tpu")
        return descent(one), [one]

    odd = [
        batches()[6][0][:1].clone(),  # fewer rows
        torch.full((3, 3), 0.5, device="tpu")[:2],  # a part
        torch.full((3, 2), 0.5, device="tpu").t(),  # in another order
        torch.full((2, 3), 0.5, device="tpu", dtype=torch.float64),
    ]
    for one in odd:
        given = batches()
        if rank == size - 1:
            given[6] = (one,)
        assert trains(lambda: make(3), given) >= 3 + len(given) - 6
    given = [*batches(6), (torch.full((3, 2), 0.5, device="tpu"),)]  # as many elements
    assert trains(make, given) >= 4


def against(rank: int, step: Step, given: list[Batch], state: list[torch.Tensor]) -> str:
    """What every rank is told of rank 1's step."""
    with pytest.raises(FuseError, match="the step cannot be joined") as error:
        list(training.train(step, given, state))
    lines = str(error.value).splitlines()
    assert lines[-1].startswith("  hint: change what is named here, or run the steps as they are")
    assert lines[1].startswith("  rank 1: "), lines
    return lines[1]


def refusals(rank: int, size: int) -> None:
    """Every rank raises what one has against its step, before anybody waits for it."""
    one, many = torch.ones(3, device="tpu"), batches(20)
    plain, numbers = descent(one), iter(range(100))

    def with_numbers(x: torch.Tensor) -> torch.Tensor:
        return plain(x * (1.5 + next(numbers)) if rank else x * 1.5)

    def of_a_part(x: torch.Tensor) -> torch.Tensor:
        loss = plain(x)
        return torch.stack([loss, loss])[0] if rank else loss

    assert "numbers of the host that change" in against(rank, with_numbers, many, [])
    assert "returns a loss that is a part of" in against(rank, of_a_part, many, [])

    def by_the_root(x: torch.Tensor) -> torch.Tensor:
        dist.reduce(x.clone(), 0)
        return plain(x)

    with pytest.raises(FuseError, match="  rank 1: reduce cannot be part of a joined step"):
        list(training.train(by_the_root, many, [one]))
    rows = torch.ones(40, 3, device="tpu")
    parts = [(rows[at : at + 2],) if rank else many[0] for at in range(20)]
    assert "takes a batch that is a part of its memory" in against(rank, plain, parts, [])
    count = torch.ones(2) if rank else torch.ones(2, device="tpu")
    said = against(rank, plain, many, [one, count])
    assert "state[1], float32[2] on cpu, is on the CPU" in said and "would stay behind" in said


def by_the_host(rank: int, size: int) -> None:
    one = torch.ones(3, device="tpu")
    with pytest.raises(FuseError, match="collectives go by JAX's runtime") as error:
        joined.capture(lambda: dist.all_reduce(one))
    assert "hint: set FUSE_COLLECTIVES=xla" in str(error.value)
    with pytest.raises(
        FuseError, match="joined.\n  rank 0: a step is captured where collectives go"
    ):
        list(training.train(descent(one), batches(), [one]))
    assert one.tolist() == [1.0] * 3, "nothing has run"


@pytest.mark.slow
@pytest.mark.parametrize("function", [given_back, normalised, other_batches, refusals])
def test_loops(function: Any) -> None:
    passes(function, 2, GROUP, seconds=150, **SETTINGS)


@pytest.mark.slow
@pytest.mark.parametrize("function", [given_back, normalised, other_batches])
def test_loops_of_one_rank(function: Any) -> None:
    passes(function, 1, GROUP, seconds=150, **SETTINGS)


@pytest.mark.slow
def test_collectives_by_the_host_are_not_captured() -> None:
    passes(by_the_host, 1, GROUP, **{**SETTINGS, "FUSE_COLLECTIVES": "auto"})


def test_what_is_compiled_in_the_background_is_not_captured(monkeypatch: Any) -> None:
    monkeypatch.setattr(lazy.engine().planning.compiler, "background", True)
    called: list[int] = []
    with pytest.raises(FuseError, match="captured as it is compiled") as error:
        joined.capture(lambda: called.append(1))
    assert "hint: set FUSE_TIER=compiled before" in str(error.value) and not called


def test_batches_are_alike_where_the_same_of_them_are_one_tensor() -> None:
    x, y = torch.ones(2, 3, device="tpu"), torch.zeros(2, 3, device="tpu")
    assert training._form((x, y)) == training._form((y, x)) != training._form((x, x))
    assert training._form((x, y[:1])) is None and training._form((x.cpu(),)) is None
    assert training._form((x[:0],)) is not None
