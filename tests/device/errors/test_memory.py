"""Memory that the device does not have is refused where it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from fuse.device import lazy
from tests.device.helpers import DEVICE
from tests.lanes import only_in

TOO_MUCH: dict[str, Callable[[], object]] = {
    "a factory": lambda: torch.ones(2**40, device=DEVICE),
    "a result": lambda: torch.ones(2**20, 1, device=DEVICE) * torch.ones(1, 2**20, device=DEVICE),
    "a layer": lambda: nn.Linear(4, 4).to(DEVICE)(torch.ones(1, device=DEVICE).expand(2**38, 4)),
    "a copy": lambda: torch.ones(2, device=DEVICE).expand(2**40, 2).contiguous(),
    "resize_": lambda: torch.ones(2, device=DEVICE).resize_(2**42),
    "out=": lambda: torch.neg(
        torch.ones(1, device=DEVICE).expand(2**40), out=torch.empty(0, device=DEVICE)
    ),
    "a storage": lambda: torch.UntypedStorage(2**44, device=DEVICE),
}


@contextmanager
def bounds(largest: int, together: int) -> Iterator[None]:
    """The device has no more memory in the block."""
    lazy.core().set_memory_bounds(largest, together)
    try:
        yield
    finally:
        lazy.core().set_memory_bounds(*lazy.engine().memory.bounds())


@pytest.mark.parametrize("what", TOO_MUCH)
def test_what_cannot_exist_is_refused_at_the_call_and_takes_nothing_with_it(what: str):
    older = torch.arange(3.0, device=DEVICE) * 2
    with pytest.raises(torch.OutOfMemoryError, match=r"tried to allocate \d+\.00 TiB") as caught:
        TOO_MUCH[what]()
    text = str(caught.value)
    assert "are in use" in text and "operator: " in text and "hint: " in text
    assert "test_memory.py:" in text
    assert (older + 1).tolist() == [1.0, 3.0, 5.0]


@pytest.mark.parametrize("rounds", [1, 3, 6])
def test_values_that_live_together_are_bounded(rounds: int):
    torch.tpu.synchronize()
    for _ in range(rounds):
        kept = []
        with bounds(2**40, 1 << 26), pytest.raises(torch.OutOfMemoryError, match="4.00 MiB"):
            for number in range(100):
                kept.append(torch.ones(1 << 20, device=DEVICE) * number)
                torch.tpu.synchronize()
        assert 1 < len(kept) <= 16
        assert [x[5].item() for x in kept] == list(range(len(kept)))
        del kept  # and there is room again
        torch.tpu.synchronize()
        with bounds(2**40, 1 << 26):
            assert (torch.ones(1 << 21, device=DEVICE) + 1)[7].item() == 2.0


@only_in("compiled", "accelerator", reason="uncompiled, memory is asked of the system")
def test_a_known_call_is_refused_as_well():
    def program(size: int) -> torch.Tensor:
        return torch.ones(size, 1, device=DEVICE) * torch.ones(1, size, device=DEVICE)

    for _ in range(6):
        assert program(256)[1, 1].item() == 1.0
    with bounds(1 << 17, 0), pytest.raises(torch.OutOfMemoryError, match=r"256.00 KiB"):
        program(256)
    assert program(256).sum().item() == 65536.0


def test_pytorch_s_own_calls_for_an_accelerator_s_memory_answer() -> None:
    held = torch.ones(1000, device=DEVICE) + 1
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    assert before == torch.tpu.memory_allocated() >= 4000
    more = torch.ones(500, device=DEVICE)
    assert torch.accelerator.memory_allocated() == before + 2000
    del more
    torch.accelerator.empty_cache()
    assert torch.accelerator.max_memory_allocated() >= before + 2000
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == torch.accelerator.memory_allocated()
    stats = torch.accelerator.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.tpu.memory_allocated()
    assert held[0].item() == 2
