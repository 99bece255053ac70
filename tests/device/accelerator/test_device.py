"""The device as PyTorch's questions about an accelerator name it: indices, modules, contexts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.device.accelerator.alike import assert_same_error, run_on_two_devices
from tests.device.helpers import DEVICE, run

INDEX = 99
QUESTIONS: dict[str, Callable[[int], object]] = {
    "set_device": torch.tpu.set_device,
    "set_device_index": torch.accelerator.set_device_index,
    "a context": lambda index: torch.accelerator.device_index(index).__enter__(),
    "synchronize": torch.accelerator.synchronize,
    "memory_stats": torch.accelerator.memory_stats,
    "memory_allocated": torch.accelerator.memory_allocated,
    "memory_info": torch.accelerator.get_memory_info,
    "mem_get_info": torch.tpu.mem_get_info,
    "peaks": torch.accelerator.reset_peak_memory_stats,
    "totals": torch.accelerator.reset_accumulated_memory_stats,
    "random state": torch.tpu.get_rng_state,
    "setting it": lambda index: torch.tpu.set_rng_state(torch.tpu.get_rng_state(), index),
    "properties": torch.tpu.get_device_properties,
    "a stream": torch.tpu.Stream,
    "a tensor": lambda index: torch.ones(2, device=f"tpu:{index}"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_device_that_is_not_there_is_refused_by_its_index(name: str):
    torch.tpu.init()
    with pytest.raises(RuntimeError, match=f"invalid tpu device index {INDEX}: there are "):
        QUESTIONS[name](INDEX)
    assert torch.tpu.current_device() == torch.accelerator.current_device_index() == 0


@pytest.mark.parametrize("index", [256, 1 << 20, -257])
def test_an_index_past_those_that_pytorch_has_is_no_other_one(index: int):
    with pytest.raises(RuntimeError, match=f"invalid tpu device index {index}: there are "):
        torch.tpu.set_device(index)
    with pytest.raises(RuntimeError, match=f"invalid tpu device index {index}: there are "):
        torch.tpu.get_rng_state(index)


def test_another_kind_of_device_is_no_answer():
    for ask in (
        torch.accelerator.set_device_index,
        torch.accelerator.current_stream,
        torch.accelerator.synchronize,
        torch.accelerator.memory_stats,
    ):
        with pytest.raises(ValueError, match="cpu doesn't match the current accelerator tpu"):
            ask("cpu")


def test_the_module_is_found_by_every_name_of_the_device():
    for name in ("tpu", "tpu:0", DEVICE, torch.device("tpu", 0), None):
        assert torch.get_device_module(name) is torch.tpu
    assert torch.get_device_module("cpu") is torch.cpu
    assert torch.utils.backend_registration._privateuse1_backend_name == "tpu"
    with pytest.raises(RuntimeError, match="already been set! Current backend: tpu"):
        torch.utils.rename_privateuse1_backend("other")
    with pytest.raises(RuntimeError, match="'tpu' has already been registered"):
        torch._register_device_module("tpu", torch.tpu)


def test_a_number_alone_is_one_of_the_accelerators():
    assert torch.device(0) == torch.device("tpu", 0) == torch.ones(1, device=0).device
    assert torch.ones(2).to(0).device == torch.device("tpu:0")
    with torch.accelerator.device_index(None), torch.accelerator.device_index(0):
        assert torch.accelerator.current_device_index() == 0
    assert_same_error(lambda device: torch.device(f"{device.type}:x"), "Invalid device string")


def test_a_default_device_and_a_context_hold_for_what_is_made_in_them():
    with torch.device("tpu"):
        assert torch.get_default_device().type == "tpu"
        made = [torch.arange(3), torch.nn.Linear(2, 2).weight, torch.tensor([1.0]), torch.rand(2)]
        with torch.device("cpu"):
            inner = torch.ones(1)
    assert {one.device.type for one in made} == {"tpu"} and inner.device.type == "cpu"
    assert torch.ones(1).device.type == "cpu"


def test_comparisons_say_what_differs_as_on_the_cpu():
    def compare(device: torch.device) -> None:
        x = torch.arange(6.0).view(2, 3).to(device)
        torch.testing.assert_close(x, x + x.eq(4) * 0.5)

    assert_same_error(compare, "Mismatched elements: 1 / 6")
    with pytest.raises(AssertionError, match="'device' do not match: tpu:0 != cpu"):
        torch.testing.assert_close(torch.ones(1, device=DEVICE), torch.ones(1))
    made = torch.testing.make_tensor(4, dtype=torch.float32, device=DEVICE, low=1, high=2)
    assert made.device.type == "tpu" and ((made >= 1) & (made < 2)).all().item()


def test_a_rank_asks_for_its_device_by_its_own_number():
    run(
        """
import torch
state = torch.tpu.get_rng_state("tpu:3")
torch.rand(2, device="tpu:3")
assert not torch.equal(torch.tpu.get_rng_state(3), state)
torch.tpu.set_rng_state(state, "tpu:3")
assert torch.equal(torch.tpu.get_rng_state(0), state)
assert torch.accelerator.get_memory_info(3)[1] == torch.accelerator.get_memory_info(0)[1]
assert torch.tpu.get_device_properties("tpu:3") == torch.tpu.get_device_properties(0)
""",
        LOCAL_RANK="3",
    )


def test_blocks_of_two_devices_nest_and_an_exception_leaves_them():
    run_on_two_devices("""
now = torch.accelerator.current_device_index
x = torch.ones(2, device="tpu:1")
assert torch.accelerator.device_count() == torch.tpu.device_count() == 2 and now() == 0
found = []
try:
    with torch.accelerator.device_index(1):
        found.append(torch.ones(1, device="tpu").device.index)
        with torch.accelerator.device_index(0), torch.accelerator.device_index(None):
            found.append((x + 1).device.index)
            found.append(torch.ones(1, device="tpu").device.index)
        found.append(now())
        raise KeyError
except KeyError:
    found.append(now())
assert found == [1, 1, 0, 1, 0], found
assert torch.accelerator.get_device_capability(0) == torch.accelerator.get_device_capability(1)
""")


def test_every_thread_has_a_current_device_of_its_own():
    run_on_two_devices("""
import threading
torch.tpu.init()
barrier = threading.Barrier(4, timeout=60)
found = {}
def work(number):
    before = torch.accelerator.current_device_index()
    torch.accelerator.set_device_index(number % 2)
    for turn in range(5):
        barrier.wait()
        x = torch.full((3, 3), float(number), device="tpu")
        total = (x @ x).sum()
        told = x.device.index, total.device.index, torch.tpu.current_device(), total.item()
        found.setdefault(number, set()).add((before, *told))
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for one in threads: one.start()
for one in threads: one.join()
expected = {n: {(0, n % 2, n % 2, n % 2, 27.0 * n * n)} for n in range(4)}
assert found == expected and torch.tpu.current_device() == 0, found
""")
