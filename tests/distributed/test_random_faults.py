"""Faults at random moments: a Python exception on every surviving rank, in time."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress

import pytest
import torch
import torch.distributed as dist

from tests.distributed.ranks import run
from tests.distributed.test_faults import hear, start, tell

FAULTS = int(os.environ.get("FUSE_TEST_RANDOM_FAULTS", "5"))
KINDS = ("kill", "raise", "sleep", "size", "order")
TIMEOUT = 20.0
"""The group's: ranks compile within their calls here, and not equally fast."""
SLACK = 10.0
"""Seconds after the group's time-out, in which a survivor has raised."""


def step(number: int, chance: random.Random, x: torch.Tensor) -> torch.Tensor:
    """One of some collectives, the same on every rank."""
    kind = chance.randrange(3)
    if kind == 0:
        dist.all_reduce(x)
        return x * 0.5
    if kind == 1:
        out = torch.empty(2 * len(x), device="tpu")
        work = dist.all_gather_into_tensor(out, x, async_op=True)
        y = x + number
        work.wait()
        return y + out[: len(x)]
    dist.broadcast(x, number % 2)
    return x + 1


def fails(kind: str, x: torch.Tensor) -> None:
    """What the faulty rank does at its moment."""
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "raise":
        raise ValueError("a fault")
    elif kind == "sleep":
        with suppress(dist.DistError):  # whoever held the store may have given up and gone
            hear("given up")
        os._exit(3)
    elif kind == "size":
        dist.all_reduce(torch.ones(len(x) + 1, device="tpu"))
    else:
        dist.all_to_all_single(torch.empty_like(x), x)


def faulty(rank: int, size: int) -> None:
    seed = int(os.environ["FUSE_TEST_SEED"])
    plan = random.Random(seed)
    kind, victim, moment = KINDS[seed % len(KINDS)], plan.randrange(size), plan.randrange(1, 12)
    length = plan.choice((6, 60_000))
    start(rank)
    chance, x = random.Random(seed), torch.ones(length, device="tpu")
    began = time.monotonic()
    try:
        for number in range(15):
            began = time.monotonic()
            if number == moment and rank == victim:
                fails(kind, x)
            else:
                x = step(number, chance, x)
        x.sum().item()
    except RuntimeError as error:
        assert time.monotonic() - began < TIMEOUT + SLACK
        text = str(error)
        assert f"rank {victim}" in text or "different collectives" in text, text
        print(f"survived: {kind}", flush=True)
        with suppress(dist.DistError):
            tell("given up")
        os._exit(0)
    raise AssertionError(f"{kind} on rank {victim} at call {moment} has not been noticed")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FAULTS))
def test_a_random_fault(seed: int) -> None:
    ended = run(faulty, 2, timeout=TIMEOUT, seconds=120, FUSE_TEST_SEED=str(seed))
    kind = KINDS[seed % len(KINDS)]
    alone = kind in ("kill", "raise", "sleep")
    texts = "\n".join(f"{one.code}\n{one.output}" for one in ended)
    assert [one.output.count("survived:") for one in ended].count(1) == (1 if alone else 2), texts
    assert all(one.code in (0, 1, 3, -signal.SIGKILL) for one in ended), texts
    assert "killed: too late" not in texts
