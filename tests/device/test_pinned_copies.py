"""Copies from pinned host memory are made beside the program, which may write there again later."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import fuse
from bench.prefetching import prefetching
from tests.device.helpers import DEVICE

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
