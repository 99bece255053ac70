"""What goes wrong on one rank is an exception on the others, in time, that says what it was."""

from __future__ import annotations

import os
import signal
import threading
import time
import types
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.distributed.ranks import passes, run

ERROR = dist.DistBackendError
TIMEOUT = 4.0


def raised(call: Any, *words: str) -> str:
    """The text of what ``call`` raises, which has all the words."""
    with pytest.raises(ERROR) as error:
        call()
    text = str(error.value)
    assert all(word in text for word in words), (words, text)
    return text


def mismatches(rank: int, size: int) -> None:
    x = torch.ones(4, device="tpu")
    big = torch.ones(100_000, device="tpu")
    sums, greatest = dist.ReduceOp.SUM, dist.ReduceOp.MAX
    for one in (x, big):
        text = raised(
            lambda one=one: dist.all_reduce(one.clone(), sums if rank == 0 else greatest),
            "different collectives",
            "rank 0, call",
            "all_reduce.sum(float32",
            "rank 1, call",
            "all_reduce.max(float32",
        )
        assert text.count("test_faults.py:") == 2, text
    raised(lambda: dist.all_reduce(torch.ones(4 + rank, device="tpu")), "float32[4]", "float32[5]")
    raised(
        lambda: dist.all_reduce(torch.ones(4, device="tpu").to([torch.int32, torch.int64][rank])),
        "int32[4]",
        "int64[4]",
    )
    raised(lambda: dist.broadcast(x.clone(), rank), "root 0", "root 1")

    def in_another_order() -> None:
        calls = [
            lambda: dist.all_reduce(x.clone()),
            lambda: dist.all_gather_into_tensor(torch.empty(8, device="tpu"), x),
        ]
        calls[rank]()

    raised(in_another_order, "all_reduce.sum", "all_gather")
    rows = [[1, 3], [2, 2]][rank]
    raised(
        lambda: dist.all_to_all_single(torch.empty(4, device="tpu"), x, [2, 2], rows),
        "rank 0 sends",
        "which expects",
    )
    # Nothing has moved, and the group goes on.
    again = torch.full((3,), float(rank), device="tpu")
    dist.all_reduce(again)
    assert again.tolist() == [1.0] * 3
    # A value that never came says so where it is read.
    lost = torch.ones(2 + rank, device="tpu")
    work = dist.all_reduce(lost, async_op=True)
    with pytest.raises(RuntimeError, match="different collectives"):
        (lost * 2).sum().item()
    raised(work.wait, "different collectives")
    assert not work.is_success() and work.is_completed()


def test_ranks_that_mean_different_calls_all_learn_it() -> None:
    passes(mismatches, 2, seconds=100)


def runtime_mismatch(rank: int, size: int) -> None:
    x = torch.ones(4 + rank, device="tpu")
    raised(lambda: dist.all_reduce(x), "float32[4]", "float32[5]")
    again = torch.ones(4, device="tpu")
    dist.all_reduce(again)
    assert again.tolist() == [2.0] * 4


@pytest.mark.slow
def test_programs_of_the_runtime_are_checked_too() -> None:
    passes(runtime_mismatch, 2, FUSE_COLLECTIVES="xla")


def tell(word: str) -> None:
    """Say a word to the other ranks, beside the group's calls."""
    dist.distributed_c10d._get_default_store().set(word, "")


def hear(*words: str) -> None:
    """Wait until all the words have been said, longer than any of these groups waits for a call."""
    dist.distributed_c10d._get_default_store().wait(list(words), timedelta(seconds=50))


def start(rank: int) -> torch.Tensor:
    x = torch.ones(4, device="tpu")
    torch.tpu.synchronize()
    # Starts and compilations take longer than these groups wait.
    tell(f"ready {rank}")
    hear(*(f"ready {one}" for one in range(dist.get_world_size())))
    dist.all_reduce(x)
    return x


def timed(call: Any, *words: str) -> str:
    began = time.monotonic()
    text = raised(call, *words)
    assert time.monotonic() - began < TIMEOUT + 20
    return text


def killed(rank: int, size: int) -> None:
    x = start(rank)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    timed(lambda: dist.all_reduce(x), "rank 1 has died", "test_faults.py:")
    timed(lambda: dist.all_reduce(torch.ones(4, device="tpu")), "has failed before")
    with pytest.raises(RuntimeError, match="rank 1 has died"):
        x.tolist()  # what it was to become is lost


def raises(rank: int, size: int) -> None:
    x = start(rank)
    if rank == 1:
        raise ValueError("no more data")
    timed(lambda: dist.all_reduce(x), "rank 1 has raised ValueError: no more data")


def leaves(rank: int, size: int) -> None:
    x = start(rank)
    if rank == 1:
        dist.destroy_process_group()
        time.sleep(2 * TIMEOUT)
        return
    timed(lambda: dist.all_reduce(x), "rank 1 has left the group")


def sleeps(rank: int, size: int) -> None:
    x = start(rank)
    if rank == 1:
        comes_late(x)
        return
    timed(
        lambda: dist.all_reduce(x),
        "Timed out",
        "rank 1 is alive but has not come to call 2; its last was call 1: all_reduce.sum",
    )
    tell("given up")
    hear("told")  # this rank holds the store in which the other one finds why


def comes_late(x: torch.Tensor) -> None:
    """What another rank meets once rank 0 has given up waiting for it."""
    hear("given up")
    # What rank 0 had to say for a small call has come: this rank's result is right, and only the
    # next call can tell that the other one has given up.
    raised(lambda: [dist.all_reduce(x) for _ in range(2)], "rank 0 has failed in call 2")
    tell("told")


def is_stopped(rank: int, size: int) -> None:
    """Late is no death: the group's time-out ends a call, and silence alone ends nothing."""
    x = start(rank)
    patient = dist.new_group([0, 1], timeout=timedelta(seconds=60))
    y = torch.ones(4, device="tpu")
    dist.all_reduce(y, group=patient)
    if rank == 1:
        dist.distributed_c10d._get_default_store().set("pid", str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)  # until rank 0 has looked
        dist.all_reduce(y, group=patient)
        assert y.tolist() == [4.0] * 4
        comes_late(x)
        return
    pid = int(dist.distributed_c10d._get_default_store().get("pid"))
    waiting = dist.all_reduce(y, group=patient, async_op=True)
    text = timed(lambda: dist.all_reduce(x), "Timed out", "rank 1 is late: it has said")
    assert "died" not in text and "and has not come to call" in text
    os.kill(pid, signal.SIGCONT)
    waiting.wait()
    assert y.tolist() == [4.0] * 4
    tell("given up")
    hear("told")


def store_is_stopped(rank: int, size: int) -> None:
    """The rank that holds the group's store; a call to it does not return until it goes on."""
    x = start(rank)
    if rank == 0:
        dist.distributed_c10d._get_default_store().set("pid", str(os.getpid()))
        hear("has the number")
        os.kill(os.getpid(), signal.SIGSTOP)
        hear("told")
        return
    pid = int(dist.distributed_c10d._get_default_store().get("pid"))
    tell("has the number")
    while "T" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]:
        time.sleep(0.01)
    text = timed(lambda: dist.all_reduce(x), "Timed out", "store does not answer", "late")
    assert "died" not in text and "is gone" not in text
    os.kill(pid, signal.SIGCONT)
    tell("told")


def dies_unmet(rank: int, size: int) -> None:
    """Killed before the ranks have connected: no connection closes, but its process is gone."""
    torch.tpu.init()
    group = dist.new_group([0, 1, 2], timeout=timedelta(seconds=80))
    tell(f"ready {rank}")
    hear(*(f"ready {one}" for one in range(size)))
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    x = torch.ones(4, device="tpu")
    text = raised(lambda: dist.all_reduce(x, group=group), "rank 2 has died")
    assert "Timed out" not in text
    if rank == 0:
        hear("told")  # this rank holds the store that the other one needs to find who is gone
    else:
        tell("told")


def first_dies(rank: int, size: int) -> None:
    x = start(rank)
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    timed(lambda: dist.all_reduce(x), "rank 0")


@pytest.mark.parametrize(
    ("function", "codes"),
    [
        (killed, (0, -9)),
        pytest.param(raises, (0, 1), marks=pytest.mark.slow),
        pytest.param(leaves, (0, 0), marks=pytest.mark.slow),
        pytest.param(sleeps, (0, 0), marks=pytest.mark.slow),
        (is_stopped, (0, 0)),
        pytest.param(store_is_stopped, (0, 0), marks=pytest.mark.slow),
        (dies_unmet, (0, 0, -9)),
        pytest.param(first_dies, (-9, 0), marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_does_not_come(function: Any, codes: tuple[int, ...]) -> None:
    ended = run(function, len(codes), timeout=TIMEOUT, seconds=100)
    assert tuple(one.code for one in ended) == codes, "\n".join(one.output for one in ended)


def one_of_three(rank: int, size: int) -> None:
    x = start(rank)
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    timed(lambda: dist.all_reduce(x), "rank 2 has")


@pytest.mark.slow
def test_all_survivors_are_told() -> None:
    ended = run(one_of_three, 3, timeout=TIMEOUT, seconds=100)
    assert [one.code for one in ended] == [0, 0, -9], "\n".join(one.output for one in ended)


def interrupted(rank: int, size: int) -> None:
    x = start(rank)
    if rank == 1:
        comes_late(x)
        return

    def interrupt(number: int, frame: types.FrameType | None) -> None:
        """As Python's own handler, but of no effect once the wait is over."""
        while frame is not None and frame.f_code is not wait.__code__:
            frame = frame.f_back
        if frame is not None:
            raise KeyboardInterrupt

    def wait() -> None:
        dist.all_reduce(x)

    def press() -> None:  # again, as a user would: one that comes within a callback of C++ is lost
        while not ended.wait(1):
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, interrupt)
    ended = threading.Event()
    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        wait()
    ended.set()
    tell("given up")
    hear("told")


@pytest.mark.slow
def test_ctrl_c_ends_a_wait() -> None:
    passes(interrupted, 2, timeout=25.0)


def wrong_arguments(rank: int, size: int) -> None:
    x = torch.ones(4, device="tpu")
    with pytest.raises(ValueError, match="all_gather: the sizes do not fit"):
        dist.all_gather_into_tensor(torch.empty(9, device="tpu"), x)
    with pytest.raises(TypeError, match=r"float64\[8\] and float32\[4\]"):
        dist.all_gather_into_tensor(torch.empty(8, device="tpu", dtype=torch.float64), x)
    dist.all_reduce(x)  # nobody has been left waiting
    assert x.tolist() == [2.0] * 4


@pytest.mark.slow
def test_a_call_that_is_wrong_by_itself_concerns_nobody_else() -> None:
    passes(wrong_arguments, 2)


def new_group(rank: int, size: int) -> None:
    x = start(rank)
    group = dist.new_group([0, 1], timeout=timedelta(seconds=60))
    if rank == 1:
        hear("given up")
    else:
        timed(lambda: dist.all_reduce(x), "has not come")
        tell("given up")
    # The other group is another matter.
    fresh = torch.ones(2, device="tpu")
    dist.all_reduce(fresh, group=group)
    assert fresh.tolist() == [2.0, 2.0]


@pytest.mark.slow
def test_another_group_works_after_a_failure() -> None:
    passes(new_group, 2, timeout=TIMEOUT)
