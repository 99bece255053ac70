"""``torch.tpu``: devices, streams, events, memory, random state."""

from __future__ import annotations

import gc

import pytest
import torch

from fuse.trace.spec import ITEMSIZE
from tests.device.helpers import DEVICE


def test_the_device_is_known_to_torch():
    assert torch.tpu.is_available() and torch.tpu.device_count() >= 1
    assert torch.tpu.current_device() == 0
    assert isinstance(torch.tpu.get_device_name(), str)
    assert torch.ones(1).tpu().device == torch.device("tpu", 0)
    assert torch.ones(1, device="tpu").is_tpu
    assert torch.nn.Linear(1, 1).tpu().weight.device.type == "tpu"
    assert torch.accelerator.current_accelerator().type == "tpu"
    assert torch.accelerator.is_available() and torch.accelerator.device_count() >= 1
    torch.accelerator.synchronize()


def test_device_contexts():
    with torch.tpu.device(0):
        assert torch.tpu.current_device() == 0
    with torch.tpu.device(-1), torch.tpu.device("tpu:0"), torch.tpu.device(None):
        assert torch.empty(1, device="tpu").device.index == 0
    torch.tpu.set_device("tpu:0")
    with pytest.raises(RuntimeError, match="invalid tpu device index 77"):
        torch.tpu.set_device(77)
    assert torch.tpu.current_device() == 0


def test_streams_and_events():
    stream = torch.tpu.current_stream()
    assert stream == torch.tpu.default_stream() and stream.device == torch.device("tpu", 0)
    other = torch.tpu.Stream()
    start, end = torch.tpu.Event(), torch.tpu.Event(enable_timing=True)
    start.record()
    with torch.tpu.stream(other):
        x = torch.ones(64, 64, device=DEVICE)
        y = x @ x
    other.synchronize()
    end.record(other)
    stream.wait_stream(other)
    stream.wait_event(end)
    end.synchronize()
    assert end.query() and stream.query()
    assert y[0, 0].item() == 64


@pytest.mark.parametrize("last", ["tpu", "generic"])
def test_events_measure_time(last: str):
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    if last == "generic":
        end = torch.Event("tpu", enable_timing=True)
    start.record()
    (torch.ones(64, 64, device=DEVICE) * 2).cpu()
    end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 60_000


def test_generic_streams_and_events():
    stream, event = torch.Stream(device="tpu"), torch.Event("tpu")
    stream.record_event(event)
    stream.synchronize()
    event.synchronize()
    assert event.query()


def test_an_event_that_was_not_recorded():
    assert torch.tpu.Event().query()
    with pytest.raises(ValueError, match="^Both events must be recorded before"):
        torch.tpu.Event(enable_timing=True).elapsed_time(torch.tpu.Event(enable_timing=True))
    with pytest.raises(TypeError, match="elapsed_time takes an event, and not a int"):
        torch.tpu.Event(enable_timing=True).elapsed_time(1)


def test_memory_is_counted():
    torch.tpu.synchronize()
    gc.collect()
    before = torch.tpu.memory_allocated()
    torch.tpu.reset_peak_memory_stats()
    x = torch.ones(1000, device=DEVICE)
    view = x[10:]
    assert torch.tpu.memory_allocated() == before + 4000
    y = x * 2
    del x, y
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() == before + 4000
    del view
    torch.tpu.empty_cache()
    assert torch.tpu.memory_allocated() == before
    assert torch.tpu.max_memory_allocated() >= before + 8000
    stats = torch.tpu.memory_stats()
    assert stats["allocated_bytes.all.current"] == before
    assert torch.tpu.memory_summary().startswith("allocated_bytes.all.allocated ")
    assert torch.tpu.memory_reserved() >= torch.tpu.memory_allocated()


def test_memory_is_counted_as_accelerators_do():
    torch.tpu.synchronize()
    gc.collect()
    torch.accelerator.reset_accumulated_memory_stats()
    before = torch.accelerator.memory_stats()
    x = torch.ones(1000, device=DEVICE)
    during = torch.accelerator.memory_stats()
    del x
    after = torch.accelerator.memory_stats()
    for kind, amount in {"allocated_bytes": 4000, "active_bytes": 4000, "allocation": 1}.items():
        assert before[f"{kind}.all.allocated"] == before[f"{kind}.all.freed"] == 0
        assert during[f"{kind}.all.current"] == before[f"{kind}.all.current"] + amount
        assert after[f"{kind}.all.current"] == before[f"{kind}.all.current"]
        assert after[f"{kind}.all.allocated"] == after[f"{kind}.all.freed"] == amount
        assert after[f"{kind}.all.peak"] >= during[f"{kind}.all.current"]
    assert after == torch.tpu.memory_stats() and after["num_ooms"] == 0
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total == torch.tpu.get_device_properties().total_memory
    assert torch.tpu.mem_get_info()[1] == total


def test_dtypes_are_told():
    told = torch.accelerator.get_device_capability()["supported_dtypes"]
    missing = {"bcomplex32"}  # not in every PyTorch
    assert {str(dtype).removeprefix("torch.") for dtype in told} == set(ITEMSIZE) - missing


def test_seeds():
    torch.tpu.manual_seed(9)
    assert torch.tpu.initial_seed() == 9
    first = torch.rand(3, device=DEVICE).cpu()
    torch.tpu.manual_seed_all(9)
    assert torch.equal(torch.rand(3, device=DEVICE).cpu(), first)
    assert isinstance(torch.tpu.seed(), int)
    torch.manual_seed(9)
    assert torch.equal(torch.rand(3, device=DEVICE).cpu(), first)
    with pytest.raises((RuntimeError, TypeError)):
        torch.tpu.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_generators_share_a_state_as_graphs_ask():
    first, second = torch.Generator(DEVICE), torch.Generator(DEVICE)
    first.manual_seed(3)
    second.graphsafe_set_state(first.graphsafe_get_state())
    drawn = [torch.rand(4, device=DEVICE, generator=one) for one in (first, second, first)]
    first.manual_seed(3)
    again = [torch.rand(4, device=DEVICE, generator=first) for _ in range(3)]
    assert all(map(torch.equal, drawn, again))
    apart = first.clone_state()
    assert torch.equal(*(torch.rand(4, device=DEVICE, generator=one) for one in (first, apart)))
    with pytest.raises(TypeError, match="a state of the tpu device's generator is a generator of"):
        first.graphsafe_set_state(torch.Generator())


def test_pinned_memory():
    x = torch.ones(4).pin_memory()
    assert x.is_pinned() and not torch.ones(4).is_pinned()
    assert x.to(DEVICE, non_blocking=True).tolist() == [1, 1, 1, 1]
    assert torch.empty(2, pin_memory=True).is_pinned()


def test_tensors_describe_themselves():
    x = torch.ones(2, 3, device=DEVICE)
    assert "device='tpu:0'" in repr(x)
    assert x.device.type == "tpu" and not x.is_cpu and not x.is_meta
    assert x.data_ptr() != torch.ones(2, 3, device=DEVICE).data_ptr()
    assert x.untyped_storage().nbytes() == 24 and x.get_device() == 0
    assert torch.empty_like(x, device="cpu").device.type == "cpu"
    assert x.type() == "torch.tpu.FloatTensor"


def test_legacy_and_typed_constructors_are_told_what_to_do():
    with pytest.raises((TypeError, RuntimeError)):
        torch.FloatTensor([1.0], device="tpu")
