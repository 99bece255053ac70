"""``torch.Event`` on the device: what it tells of itself, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from tests.device.helpers import DEVICE


def test_it_has_a_place_and_a_number_once_it_is_recorded():
    event = torch.Event(DEVICE)
    assert event.device == DEVICE and event.event_id == 0 and event.query()
    assert "device_type=tpu" in repr(event) and "event_id=0" in repr(event)
    assert event.wait() is None  # for nothing
    event.record()
    first = event.event_id
    assert event.device == torch.device("tpu", 0) and first != 0
    event.record(torch.Stream(DEVICE))
    assert event.event_id == first
    others = [torch.Stream(DEVICE).record_event() for _ in range(3)]
    assert len({first, *(one.event_id for one in others)}) == 4
    event.synchronize()
    assert event.query()


@pytest.mark.parametrize("make", [torch.Event, torch.tpu.Event])
def test_only_events_that_time_can_be_compared(make: type[torch.Event]):
    device = (DEVICE,) if make is torch.Event else ()
    timed, plain = make(*device, enable_timing=True), make(*device)
    timed.record()
    plain.record()
    for one, other in ((timed, plain), (plain, timed), (plain, plain)):
        with pytest.raises(ValueError, match="must be created with argument 'enable_timing=True'"):
            one.elapsed_time(other)


def test_a_stream_of_another_device_records_none():
    event = torch.Event(DEVICE)
    with pytest.raises(RuntimeError, match="type TPU does not match recording stream's .* CPU"):
        event.record(torch.Stream("cpu"))
    assert event.event_id == 0


def test_one_for_other_processes_is_made_and_has_no_handle():
    for event in (torch.Event(DEVICE, interprocess=True), torch.tpu.Event(False, False, True)):
        event.record()
        event.synchronize()
        with pytest.raises(NotImplementedError, match="torch.Event ipc is not supported"):
            event.ipc_handle()
    assert torch.tpu.Event(interprocess=False).query()


def test_streams_that_wait_read_what_was_computed_before_it():
    x = torch.arange(4.0).to(DEVICE)
    made, readers = torch.Stream(DEVICE), [torch.Stream(DEVICE) for _ in range(3)]
    for turn in range(6):
        with made:
            y = (x + turn) * 2
            event = made.record_event()
            y.add_(100)
        found = []
        for one in readers:
            one.wait_event(event)
            event.wait(one)
            with one:
                found.append(y - 100)
        for one in found:
            assert one.tolist() == [2.0 * (n + turn) for n in range(4)]
        assert event.query()
