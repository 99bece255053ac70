"""Copies from pinned host memory are made beside the program, which may write there again later."""

from __future__ import annotations

import gc
import signal
import threading
import time
import weakref
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import fuse
from bench.prefetching import prefetching
from tests.device.helpers import DEVICE, made
from tests.lanes import only_in

LARGE = 8 << 20  # elements: copying them takes milliseconds
SECONDS = 60.0  # longer than any of them takes


def beside() -> int:
    """How many copies the device's thread has made since the last reset."""
    found: int = fuse.stats()["copies_beside"]
    return found


@pytest.fixture(autouse=True)
def counted() -> None:
    """Count from here."""
    torch.tpu.synchronize()
    fuse.reset_stats()


def pinned(elements: int = LARGE) -> Tensor:
    """0, 1, 2 and so on."""
    return torch.arange(elements, dtype=torch.float32).pin_memory()


def test_the_value_is_the_source() -> None:
    source = pinned()
    moved = source.to(DEVICE, non_blocking=True)
    assert torch.equal((moved * 2).cpu(), source * 2)
    assert beside() == 1


@pytest.mark.parametrize(
    "move",
    [
        lambda: torch.arange(LARGE, dtype=torch.float32),
        lambda: pinned(64),
    ],
    ids=["pageable", "small"],
)
def test_other_sources_may_be_written_to_at_once(move: Callable[[], Tensor]) -> None:
    source = move()
    expected = source.clone()
    moved = source.to(DEVICE, non_blocking=True)
    source.zero_()
    assert torch.equal(moved.cpu(), expected)
    assert beside() == 0


def test_a_blocking_copy_is_made_at_once() -> None:
    source = pinned()
    moved = source.to(DEVICE)
    source.zero_()
    assert moved[-1].item() == LARGE - 1
    assert beside() == 0


def by_event() -> None:
    event = torch.tpu.Event()
    event.record()
    event.synchronize()


def by_query() -> None:
    latest = time.monotonic() + SECONDS
    while not torch.tpu.current_stream().query():
        assert time.monotonic() < latest


WAITS: dict[str, Callable[[], object]] = {
    "the device": torch.tpu.synchronize,
    "the stream": lambda: torch.tpu.current_stream().synchronize(),
    "an event": by_event,
    "a query": by_query,
    "a read of something else": lambda: torch.ones(1, device=DEVICE).item(),
    "a copy that blocks": lambda: torch.arange(4).to(DEVICE),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_the_source_may_be_written_to_after_waiting(wait: Callable[[], object]) -> None:
    source = pinned()
    for number in range(6):  # the same program comes back
        source.fill_(number)
        moved = [source.to(DEVICE, non_blocking=True) for _ in range(2)]
        wait()
        source.fill_(-1)
        assert [copy.amin().item() for copy in moved] == [number, number]
    assert beside() == 12


def test_a_wait_for_a_stream_is_for_those_that_it_waited_for() -> None:
    here, side, source = torch.tpu.current_stream(), torch.tpu.Stream(), pinned()
    for number in range(6):
        source.fill_(number)
        with torch.tpu.stream(side):
            moved = [source.to(DEVICE, non_blocking=True) for _ in range(3)]
        here.wait_stream(side)
        here.synchronize()
        source.fill_(-1)
        assert [copy.amin().item() for copy in moved] == [number] * 3


@pytest.mark.parametrize("kind", ["event", "stream"])
def test_a_wait_for_what_an_ended_thread_copied(kind: str) -> None:
    source, moved, waits = pinned(), [], []

    def copy() -> None:
        moved.extend(source.to(DEVICE, non_blocking=True) for _ in range(16))
        stream = torch.tpu.current_stream()
        waits.append(stream.record_event() if kind == "event" else stream)

    def compute() -> None:
        torch.ones(1, device=DEVICE).item()

    for work in (copy, compute, compute):  # the later ones record where the first did
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    waits[0].synchronize()
    source.fill_(-1)
    assert [copy[-1].item() for copy in moved] == [LARGE - 1] * 16


def test_the_sources_memory_outlives_its_storage() -> None:
    sources = [torch.empty(LARGE, pin_memory=True).fill_(number) for number in range(3)]
    moved = [source.to(DEVICE, non_blocking=True) for source in sources]
    for source in sources:
        source.untyped_storage().resize_(0)
    assert [copy[-1].item() for copy in moved] == [0, 1, 2]


def test_a_finaliser_of_the_source_runs_on_the_programs_thread() -> None:
    threads: list[threading.Thread] = []
    for _ in range(4):
        source = pinned()
        storage = source.untyped_storage()
        weakref.finalize(storage, lambda: threads.append(threading.current_thread()))
        source.to(DEVICE, non_blocking=True)
        del source, storage
    torch.tpu.synchronize()
    assert threads == [threading.current_thread()] * 4


def test_a_conversion_that_fails_does_so_at_the_call() -> None:
    source = torch.zeros(LARGE, dtype=torch.uint8).pin_memory().view(torch.bits8)
    target = torch.ones(LARGE, device=DEVICE)
    with pytest.raises(NotImplementedError, match="copy_"):
        target.copy_(source, non_blocking=True)
    assert target.sum().item() == LARGE


@only_in("compiled", "accelerator", reason="counts what is compiled")
def test_what_is_compiled_does_not_depend_on_when_copies_end() -> None:
    source, compiled = pinned(), []
    for number in range(6):
        x = source.to(DEVICE, non_blocking=True)
        x = x * 2 + 1
        x = x * 3
        time.sleep(0.2 * (number % 2))
        torch.tpu.synchronize()
        compiled.append(made())
    assert compiled[2:] == compiled[2:3] * 4


def last_of(copies: int) -> Tensor:
    """The last of copies of 64 MB; 64 of them take about a second."""
    source = torch.ones(2 * LARGE).pin_memory()
    for _ in range(copies):
        last = source.to(DEVICE, non_blocking=copies > 1)
    return last


def copies_go_on() -> bool:
    """Whether any copy is still on its way."""
    time.sleep(0.1)  # one that has just been waited for may not count as done yet
    return not torch.tpu.Stream().record_event().query()  # nothing is recorded on that stream


@pytest.mark.slow
def test_a_signals_handler_ends_a_wait() -> None:
    class Late(Exception):
        pass

    def ring(*_: object) -> None:
        raise Late

    with torch.tpu.stream(torch.tpu.Stream()):
        last = last_of(64)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(Late):
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            torch.tpu.synchronize()
        assert copies_go_on()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert last.sum().item() == 2 * LARGE


@pytest.mark.slow
@only_in("compiled", reason="an uncompiled call waits for what it reads")
def test_recording_does_not_wait_for_a_copy() -> None:
    """Nor do the first stages of a known trace, which start before it ends."""
    weight = torch.ones(64, 64, device=DEVICE) / 64
    for copies in [1] * 11 + [64]:
        y = last_of(copies).view(-1, 64)[:1000]
        for _ in range(300):
            y = (y @ weight).tanh()
        assert copies_go_on() == (copies > 1)
        assert 0 < y.sum().item() < 64_000
    assert fuse.stats()["started_early"] > 0


def test_the_source_may_be_let_go() -> None:
    moved = [pinned().to(DEVICE, non_blocking=True) for _ in range(3)]
    gc.collect()
    pinned().fill_(-1)  # its memory, used again
    assert [copy[-1].item() for copy in moved] == [LARGE - 1] * 3


def test_the_copy_may_be_let_go() -> None:
    source = pinned()
    for _ in range(3):
        source.to(DEVICE, non_blocking=True)
    torch.tpu.synchronize()
    assert beside() == 3


def test_into_a_part_of_another_type() -> None:
    source = torch.arange(LARGE, dtype=torch.int32).pin_memory()
    target = torch.full((2, LARGE), 7.0, device=DEVICE)
    target[1].copy_(source, non_blocking=True)
    assert torch.equal(target.cpu(), torch.stack([torch.full((LARGE,), 7.0), source.float()]))


def test_a_side_stream_brings_the_next_batch() -> None:
    batches = [torch.full((LARGE,), float(number)).pin_memory() for number in range(6)]
    sums = [(here / LARGE).sum().item() for here in prefetching(batches)]
    assert sums == [0, 1, 2, 3, 4, 5]
    assert beside() == 6


def trained(device: torch.device | str) -> list[float]:
    """Losses of a network whose batches come from a loader, moved as its documentation says."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(192, 8192), torch.randint(0, 4, (192,)))
    model = nn.Linear(8192, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for x, y in DataLoader(data, batch_size=32, pin_memory=str(device) != "cpu"):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_loader_with_pinned_memory() -> None:
    expected = trained("cpu")
    fuse.reset_stats()
    for _ in range(2):
        assert trained(DEVICE) == pytest.approx(expected, rel=1e-4)
    assert beside() == 12


def test_memory_within_a_pinned_block_is_pinned():
    block = torch.arange(10.0).pin_memory()
    parts = {
        "a storage's part": block.untyped_storage()[8:],
        "NumPy's part": torch.from_numpy(block.numpy()[2:]),
        "its last element": torch.from_numpy(block.numpy()[9:]),
    }
    for name, part in parts.items():
        assert part.is_pinned(), name
    assert not torch.arange(10.0).is_pinned()
    part = parts["NumPy's part"]
    moved = part.to(DEVICE, non_blocking=True)
    del block, parts, part
    gc.collect()
    assert moved.tolist() == list(map(float, range(2, 10)))
