"""The simulated accelerator by itself: what it keeps the host from doing, and what programs see."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests import accelerator
from tests.accelerator import AcceleratorBackend, DeviceArray, HostReadError, Memory
from tests.device.helpers import run

MIB = 1 << 20


@pytest.fixture
def backend() -> AcceleratorBackend:
    return AcceleratorBackend(MIB)


READS: dict[str, Callable[[DeviceArray], object]] = {
    "as an array": np.asarray,
    "by DLPack": torch.from_dlpack,
    "by NumPy's DLPack": np.from_dlpack,
    "as a buffer": memoryview,
    "as C memory": lambda array: ctypes.c_char.from_buffer(array),
    "its pointer": lambda array: array.unsafe_buffer_pointer(),
    "an element": lambda array: array[0],
    "all elements": list,
    "as a number": lambda array: float(array),
    "as a truth value": bool,
}


@pytest.mark.parametrize("how", READS)
def test_the_host_reads_nothing_where_it_lies(how: str, backend: AcceleratorBackend) -> None:
    array = backend.put(np.arange(3.0), 0)
    with pytest.raises((HostReadError, TypeError, AttributeError)):
        READS[how](array)
    assert backend.get(array).tolist() == [0, 1, 2]


def test_copies_are_copies(backend: AcceleratorBackend) -> None:
    data = np.arange(4, dtype=np.int64)
    array = backend.put(data, 0)
    data[:] = 7
    first, second = backend.get(array), backend.get(array)
    assert first.tolist() == [0, 1, 2, 3] and not np.shares_memory(first, second)
    assert not first.flags.writeable
    assert (array.shape, array.dtype, array.nbytes) == ((4,), np.int64, 32)
    assert backend.copied == 3 * 32


def test_memory_is_taken_and_given_back(backend: AcceleratorBackend) -> None:
    first = backend.put(np.zeros(MIB // 2, np.uint8), 0)
    second = backend.put(np.zeros(MIB // 4, np.uint8), 0)
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED") as caught:
        backend.put(np.zeros(MIB // 2, np.uint8), 0)
    assert backend.ran_out(caught.value) and not backend.ran_out(ValueError("RESOURCE_EXHAUSTED"))
    assert backend.memory.taken == 3 * MIB // 4
    del first
    assert backend.memory.taken == MIB // 4 == second.nbytes
    backend.put(np.zeros(MIB // 2, np.uint8), 0)


def test_what_is_refused_takes_nothing() -> None:
    memory = Memory(10)
    memory.take(10)
    with pytest.raises(RuntimeError, match="10 of 10 are taken"):
        memory.take(1)
    memory.give(10)
    memory.take(3)
    assert memory.taken == 3


def test_copies_take_time(monkeypatch: pytest.MonkeyPatch, backend: AcceleratorBackend) -> None:
    slept: list[float] = []
    monkeypatch.setattr(accelerator, "time", SimpleNamespace(sleep=slept.append))
    backend.get(backend.put(np.zeros(1600, np.uint8), 0))
    assert slept == [pytest.approx(accelerator.LATENCY + 1e-7)] * 2


def test_it_is_a_platform_of_its_own(backend: AcceleratorBackend) -> None:
    assert not backend.shares_host_memory() and not backend.wakes_host_threads()
    assert not backend.platform.has_kernel("product")
    assert backend.fingerprint()["memory"] == "the accelerator's own"
    assert backend.name == "xla" and accelerator.create() is accelerator.create()


PROGRAM = """
import torch, fuse
from fuse.device import lazy
torch.manual_seed(0)
layer = torch.nn.Linear(8, 4).to("tpu")
optimizer = torch.optim.Adam(layer.parameters())
for _ in range(4):
    loss = layer(torch.ones(3, 8, device="tpu")).square().mean()
    loss.backward(); optimizer.step(); optimizer.zero_grad()
    loss.item()
backend = lazy.engine().backend
print(lazy.engine().tier, fuse.stats()["uncompiled_operations"], backend.copied > 0)
print(torch.tpu.get_device_name(), torch.tpu.get_device_properties(0).total_memory)
del loss
"""

SETTINGS = {
    "FUSE_BACKEND": "tests.accelerator:create",
    "FUSE_TEST_ACCELERATOR_BYTES": str(64 * MIB),
}


def test_a_program_runs_compiled_there() -> None:
    printed = run(PROGRAM, **SETTINGS).splitlines()
    assert printed == ["compiled 0 True", f"simulated accelerator {64 * MIB}"]


READ = """
import torch, fuse
from fuse.device import lazy
torch.manual_seed(0)
layer = torch.nn.Linear(8, 4).to("tpu")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
x = torch.ones(3, 8, device="tpu")
backend = lazy.engine().backend
for step in range(100):
    loss = layer(x).square().mean()
    loss.backward(); optimizer.step(); optimizer.zero_grad()
    read = loss.item()
    if step == 9:
        before = backend.asked, backend.waited
print(backend.asked - before[0], backend.waited - before[1])
host = torch.nn.Linear(8, 4)
torch.manual_seed(0)
host.reset_parameters()
optimizer = torch.optim.SGD(host.parameters(), lr=0.1)
for step in range(100):
    loss = host(x.cpu()).square().mean()
    loss.backward(); optimizer.step(); optimizer.zero_grad()
print(abs(loss.item() - read) < 1e-6)
"""


def test_what_a_loop_reads_is_asked_for_as_it_is_handed_on() -> None:
    """Every read then waits, and copies nothing; nothing else is asked for."""
    assert run(READ, **SETTINGS).splitlines() == ["90 90", "True"]


FULL = """
import torch, fuse
kept = []
def fill(make):
    try:
        for number in range(100):
            kept.append(make(number))
            torch.tpu.synchronize()
    except torch.OutOfMemoryError as error:
        print(len(kept), ":".join(str(error).splitlines()[0].split(":")[:3]))
    else:
        print("never full")
fill(lambda number: torch.ones(1 << 20, device="tpu") * number)
print([x[3].item() for x in kept[:3]])
kept.clear()
def copied(number):
    x = torch.full((1_300_000,), float(number)).to("tpu")
    x.sum().item()  # it is copied when it is first read
    return x
fill(copied)
print([x[3].item() for x in kept[:3]])
kept.clear()
try:
    torch.ones(1 << 25, device="tpu")
except torch.OutOfMemoryError as error:
    print(str(error).splitlines()[0])
print((torch.ones(1 << 20, device="tpu") + 1).sum().item())
"""


def test_memory_that_runs_out_is_pytorchs_own_error() -> None:
    printed = run(FULL, **SETTINGS).splitlines()
    assert printed == [
        "17 tpu out of memory: tried to allocate 4.00 MiB; 64.00 MiB of 64.00 MiB are in use: "
        "running a chunk failed",
        "[0.0, 1.0, 2.0]",
        "12 tpu out of memory: tried to allocate 4.96 MiB; 59.51 MiB of 64.00 MiB are in use: "
        "copying to the device failed",
        "[0.0, 1.0, 2.0]",
        "tpu out of memory: tried to allocate 128.00 MiB; 0 bytes of 64.00 MiB are in use.",
        "2097152.0",
    ]
