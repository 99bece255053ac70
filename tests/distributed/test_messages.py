"""Messages from rank to rank: they need their two ranks alone, and say what became of the other."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.distributed.ranks import passes, run
from tests.distributed.test_faults import hear, raised, tell
from tests.marks import slow_but

SHORT = 5.0
"""How long groups wait whose time-out is what is looked at."""


def filled(number: float, size: int = 4) -> torch.Tensor:
    return torch.full((size,), float(number), device="tpu")


def meet(rank: int, size: int) -> None:
    """Every rank's device has started, and so joined the group."""
    torch.tpu.init()
    tell(f"ready {rank}")
    hear(*(f"ready {one}" for one in range(size)))


def by_calls(me: int, other: int) -> None:
    for step, size in enumerate((4, 300_000, 0)):
        got = torch.empty(size, device="tpu")
        if me < other:
            dist.send(filled(step, size), other, tag=step)
            dist.recv(got, other)
        else:
            dist.recv(got, other, tag=step)
            dist.send(filled(step, size), other)
        torch.testing.assert_close(got.cpu(), torch.full((size,), float(step)))


def by_batch(me: int, other: int) -> None:
    got = torch.empty(50_000, device="tpu")
    ops = [
        dist.P2POp(dist.isend, filled(me, 50_000), other),
        dist.P2POp(dist.irecv, got, other),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert got.unique().tolist() == [other]


def from_anybody(me: int, other: int) -> None:
    if me < other:
        dist.send(filled(me), other, tag=9)
        return
    got = torch.empty(4, device="tpu")
    assert dist.recv(got, tag=9) == other
    assert got.tolist() == [other] * 4


WAYS: tuple[Callable[[int, int], None], ...] = (by_calls, by_batch, from_anybody)


def two_of_three(rank: int, size: int) -> None:
    """Each two in turn, while the third is busy with something else until they have talked."""
    for busy in range(size):
        pair = [one for one in range(size) if one != busy]
        words = [f"{one} has talked without {busy}" for one in pair]
        if rank in pair:
            for way in WAYS:
                way(rank, pair[1 - pair.index(rank)])
            tell(words[pair.index(rank)])
        hear(*words)
    dist.barrier()  # rank 0 holds the store in which the others listen


@pytest.mark.parametrize("backend", slow_but(["fuse"], ["fuse", None]))
def test_two_ranks_need_no_third(backend: str | None) -> None:
    passes(two_of_three, 3, backend)


def in_a_part(rank: int, size: int) -> None:
    """Of a group of two one is busy in the group of all, where the other two talk."""
    part = dist.new_group([1, 2])
    if rank == 0:
        hear("1 has talked", "2 has talked")
        dist.send(filled(3.0), 1)
        return
    ops = [
        dist.P2POp(dist.isend, filled(rank), 3 - rank, group=part),
        dist.P2POp(dist.irecv, got := torch.empty(4, device="tpu"), 3 - rank, group=part),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert got.tolist() == [3 - rank] * 4
    tell(f"{rank} has talked")
    if rank == 1:
        dist.recv(got, 0)
        assert got.tolist() == [3.0] * 4


def test_groups_of_some_of_the_ranks() -> None:
    passes(in_a_part, 3)


def beside_a_collective(rank: int, size: int) -> None:
    """One that waits for the third is no obstacle."""
    mine = filled(rank)
    work = None if rank == 2 else dist.all_reduce(mine, async_op=True)
    if rank == 2:
        hear("0 has talked", "1 has talked")
        dist.all_reduce(mine)
    else:
        by_batch(rank, 1 - rank)
        tell(f"{rank} has talked")
    if work is not None:
        work.wait()
    assert mine.tolist() == [3.0] * 4


def test_messages_go_beside_a_collective_that_waits() -> None:
    passes(beside_a_collective, 3)


def random_messages(rank: int, size: int) -> None:
    """A script that all ranks know; each has an order of its own, but as the script has it for one
    pair and tag."""
    for seed in range(int(os.environ["FUSE_TEST_MESSAGES"])):
        script = random.Random(seed)
        messages = [
            (script.randrange(size), script.randrange(size), script.randrange(3), length)
            for length in script.choices((0, 1, 1000, 70_000), k=40)
        ]
        sends, receives = [], []
        for number, (source, target, tag, length) in enumerate(messages):
            sends += [(number, target, tag, length)] if source == rank else []
            receives += [(number, source, tag, length)] if target == rank else []
        own = random.Random(1000 * seed + rank)
        works: list[Any] = []
        got = []
        while sends or receives:
            some = own.choice([one for one in (sends, receives) if one])
            number, peer, tag, length = some.pop(0)
            if some is sends:
                ops = [dist.P2POp(dist.isend, filled(number, length), peer, tag=tag)]
            else:
                got.append((number, torch.empty(length, device="tpu")))
                ops = [dist.P2POp(dist.irecv, got[-1][1], peer, tag=tag)]
            works += dist.batch_isend_irecv(ops)
        for work in works:
            work.wait()
        for number, tensor in got:
            assert (tensor == number).all().item(), (seed, number, tensor)
    dist.barrier()  # rank 0 holds the store by which the others find each other


@pytest.mark.parametrize(("size", "count"), [(3, 6), pytest.param(4, 40, marks=pytest.mark.slow)])
def test_random_messages_arrive_in_order(size: int, count: int) -> None:
    passes(random_messages, size, "fuse", seconds=200, FUSE_TEST_MESSAGES=str(count))


def wrong_sizes(rank: int, size: int) -> None:
    if rank == 0:
        raised(
            lambda: dist.send(filled(1.0, 5), 1),
            "send(float32[5]) to rank 1 at",
            "test_messages.py:",
            "rank 1 expects 16 bytes, not the 20 that are sent here; none have moved",
        )
        dist.send(filled(1.0), 1)
    else:
        got = torch.empty(4, device="tpu")
        text = "rank 0 sends 20 bytes, and 16 are expected here; none have moved"
        raised(lambda: dist.recv(got, 0), "recv(float32[4]) from rank 0 at", text)
        dist.recv(got, 0)  # and on it goes
        assert got.tolist() == [1.0] * 4


def test_sizes_that_differ_are_said_on_both_sides() -> None:
    passes(wrong_sizes, 2)


def from_late(rank: int, size: int) -> None:
    meet(rank, size)
    if rank == 0:
        got = torch.empty(4, device="tpu")
        raised(lambda: dist.recv(got, 1), "Timed out waiting for rank 1", "rank 1 is alive")
        raised(lambda: dist.send(filled(1.0), 1), "Timed out waiting for rank 1", "rank 1 is alive")
        got = torch.empty(4, device="tpu")
        raised(lambda: dist.recv(got), "Timed out waiting for any rank")
        tell("given up")
        hear("heard")  # this rank holds the store in which the other one listens
    else:
        hear("given up")
        tell("heard")


def from_dead(rank: int, size: int) -> None:
    """Whether it has ever been talked to or not; the third rank is no part of it."""
    if rank == 1:
        dist.send(filled(1.0), 0)
        hear("received")
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:
        got = torch.empty(4, device="tpu")
        dist.recv(got, 1)
        tell("received")
        text = raised(lambda: dist.recv(got, 1), "recv(float32[4]) from rank 1", "rank 1 has died")
        assert "Timed out" not in text
        with pytest.raises(RuntimeError, match="rank 1 has died"):
            got.tolist()
        hear("told")  # this rank holds the store that the other one needs to find who is gone
    else:
        text = raised(lambda: dist.send(filled(1.0), 1), "send(float32[4]) to rank 1", "has died")
        assert "Timed out" not in text
        tell("told")


def from_ended(rank: int, size: int) -> None:
    meet(rank, size)
    if rank == 1:
        raise ValueError("no more data")
    got = torch.empty(4, device="tpu")
    raised(lambda: dist.recv(got, 1), "rank 1 has raised ValueError: no more data")
    raised(lambda: dist.recv(got), "every other rank has ended")


@pytest.mark.parametrize(
    ("function", "codes", "timeout"),
    [
        pytest.param(from_late, (0, 0), SHORT, marks=pytest.mark.slow),
        (from_dead, (0, -9, 0), 60.0),
        pytest.param(from_ended, (0, 1), 60.0, marks=pytest.mark.slow),
    ],
)
def test_a_message_that_does_not_come(
    function: Any, codes: tuple[int, ...], timeout: float
) -> None:
    ended = run(function, len(codes), timeout=timeout, seconds=100)
    assert tuple(one.code for one in ended) == codes, "\n".join(one.output for one in ended)


def after_its_end(rank: int, size: int) -> None:
    torch.tpu.init()
    group = dist.new_group([0, 1], timeout=timedelta(seconds=30))
    backend = group._get_backend(torch.device("tpu"))
    waiting = dist.irecv(torch.empty(4, device="tpu"), 1 - rank, group=group)
    assert waiting is not None
    dist.destroy_process_group(group)
    raised(waiting.wait, "the process group has been destroyed")
    raised(lambda: backend.recv([torch.empty(4, device="tpu")], 1 - rank, 0), "has been destroyed")


@pytest.mark.slow
def test_a_group_that_ends_ends_its_messages() -> None:
    passes(after_its_end, 2)
