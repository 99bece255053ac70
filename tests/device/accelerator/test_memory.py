"""Memory as programs see it: addresses, views, what is counted, and that nothing stays behind."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch

from fuse.device import lazy
from tests.device.helpers import DEVICE
from tests.programs.harness import compare_with_cpu

BYTES = 4000


def allocated() -> int:
    gc.collect()
    torch.tpu.synchronize()
    return torch.tpu.memory_allocated()


def make() -> torch.Tensor:
    return torch.ones(BYTES // 4, device=DEVICE)


def graph() -> None:
    x = make().requires_grad_()
    y = (x.exp() * x).sum()
    y.backward()


def failing() -> None:
    x = make()
    with pytest.raises(RuntimeError, match="size of tensor a"):
        x + torch.ones(3, device=DEVICE)


USES: dict[str, Callable[[], object]] = {
    "tensors": make,
    "copies": lambda: make().cpu().to(DEVICE).clone(),
    "views": lambda: [make().view(10, -1)[2:5].t(), make().unbind()[3]],
    "writes": lambda: make().add_(1).mul_(2).zero_(),
    "a graph": graph,
    "a graph without its pass": lambda: make().requires_grad_().exp().sum(),
    "a resized tensor": lambda: make().resize_(3).resize_(BYTES),
    "a file of memory": lambda: torch.frombuffer(bytearray(BYTES), dtype=torch.uint8).to(DEVICE),
    "an error": failing,
}


@pytest.mark.parametrize("name", USES)
def test_nothing_stays_behind(name: str):
    USES[name]()
    before = allocated()
    for _ in range(12):
        USES[name]()
    assert allocated() <= before  # what an earlier test left may go meanwhile


def test_a_graph_holds_what_it_saved_until_it_was_used():
    x = make().requires_grad_()
    before = allocated()
    y = x.exp()
    total = y.sum()
    del y
    assert allocated() >= before + BYTES
    total.backward()
    x.grad = None
    assert allocated() == before + 4


def test_the_peak_is_the_highest_since_it_was_reset():
    torch.tpu.synchronize()
    kept = make()
    before = allocated()
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == before
    more = [make() for _ in range(3)]
    del more
    assert torch.accelerator.max_memory_allocated() == before + 3 * BYTES
    assert torch.tpu.max_memory_allocated() == torch.accelerator.max_memory_allocated()
    assert torch.accelerator.memory_allocated() == torch.tpu.memory_allocated() == before
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_reserved() == before
    assert kept.sum().item() == BYTES // 4


def test_a_storage_is_counted_by_its_size():
    x = make()
    before = allocated()
    x.resize_(10)
    assert allocated() <= before  # what an earlier test left may go meanwhile
    x.resize_(BYTES // 2)
    assert allocated() == before + BYTES
    x.untyped_storage().resize_(0)
    assert allocated() == before - BYTES
    x.untyped_storage().resize_(BYTES)
    x.resize_(BYTES // 4).fill_(2)
    assert allocated() == before and x.sum().item() == BYTES // 2


def taken() -> int:
    """Bytes of the device's memory, in the lane where it has one of its own."""
    torch.zeros((), device=DEVICE).add_(1).item()  # what traces before read is let go of
    gc.collect()
    memory = getattr(lazy.engine().backend, "memory", None)
    return 0 if memory is None else memory.taken


def test_a_storage_of_no_bytes_gives_its_array_back():
    """FSDP frees a gathered parameter so, while its tensor and views live on."""
    from_host, computed = torch.ones(BYTES // 4).to(DEVICE), make() + 1
    view, pending = computed[1:], computed * 2
    held = [from_host, computed, pending]
    torch.tpu.synchronize()
    taken_before = taken()
    for one in held:
        one.untyped_storage().resize_(0)
    # What came from the host goes to the device when it is read there.
    assert taken_before == 0 or taken() < BYTES < taken_before
    for one in held:
        one.untyped_storage().resize_(BYTES)
        one.fill_(3)
    assert view.sum().item() == 3 * (BYTES // 4 - 1)
    assert pending.sum().item() == from_host.sum().item() == 3 * BYTES // 4


def test_what_was_read_before_a_storage_was_given_up_stands():
    x = make()
    y = x + 1  # recorded, and not yet run
    x.untyped_storage().resize_(0)
    assert y.sum().item() == 2 * BYTES // 4


def test_addresses_are_those_of_one_memory():
    def program(device):
        x = torch.arange(24.0).to(device).view(4, 6)
        base = x.data_ptr()
        views = [x.view(-1), x[1], x[:, 2], x.t(), x[2:, ::2], x.detach(), x.view_as(x), x.data]
        places = [view.data_ptr() - base for view in views]
        for write in (x.add_, x.mul_):
            write(2)
        x[1:3] = 0
        same = x.data_ptr() == base
        other = [x.clone().data_ptr() == base, x.contiguous().data_ptr() == base]
        shared = {view.untyped_storage().data_ptr() for view in views}
        return places, same, other, len(shared), views

    compare_with_cpu(program)
