"""``torch.Stream`` on the device: identity, blocks, and the streams of threads and devices."""

from __future__ import annotations

import threading

import pytest
import torch

from tests.device.accelerator.alike import run_on_two_devices
from tests.device.helpers import DEVICE


def current() -> torch.Stream:
    return torch.accelerator.current_stream()


def test_a_stream_is_the_one_of_its_parts():
    one, other = torch.Stream(DEVICE), torch.Stream(DEVICE)
    again = torch.Stream(
        stream_id=one.stream_id, device_index=one.device_index, device_type=one.device_type
    )
    assert again == one != other and hash(again) == hash(one)
    assert {one: "one", other: "other"}[again] == "one"
    assert one.device == torch.device("tpu", 0) and torch.Stream(0).device == one.device
    assert f"device_type=tpu, device_index=0, stream_id={one.stream_id}" in repr(one)
    assert one != torch.Stream("cpu")


def test_blocks_nest_and_an_exception_leaves_them():
    before, one, other = current(), torch.Stream(DEVICE), torch.Stream(DEVICE)
    with one as entered:
        assert entered is one and current() == one == torch.tpu.current_stream()
        with other:
            assert current() == other
        assert current() == one
        with pytest.raises(KeyError), other:
            raise KeyError
        assert current() == one
        with one:
            assert current() == one
        assert current() == one
    assert current() == before


def test_a_stream_is_set_until_another_one_is():
    before, one = current(), torch.Stream(DEVICE)
    try:
        torch.accelerator.set_stream(one)
        x = torch.arange(3.0).to(DEVICE) * 2
        torch.Stream(DEVICE)
        assert current() == one
        with pytest.raises(RuntimeError, match="CPU doesn't match the current accelerator TPU"):
            torch.accelerator.set_stream(torch.Stream("cpu"))
        assert current() == one
    finally:
        torch.accelerator.set_stream(before)
    assert current() == before
    one.synchronize()
    assert one.query() and x.tolist() == [0, 2, 4]


def test_a_block_is_its_threads_own():
    one = torch.Stream(DEVICE)
    found: list[torch.Stream] = []

    def look() -> None:
        found.append(current())
        with one:
            found.append(current())

    with torch.Stream(DEVICE) as here:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert current() == here
    assert found[0] != here and found[1] == one


def test_a_block_makes_its_device_the_current_one():
    run_on_two_devices("""
now, stream_of = torch.accelerator.current_device_index, torch.accelerator.current_stream
there, here = torch.Stream("tpu:1"), torch.Stream(0)
assert (there.device_index, here.device_index) == (1, 0) and torch.Stream(1) != there
assert torch.Stream(1).device == there.device
before = stream_of(0), stream_of(1)
with there:
    x = torch.arange(3.0, device="tpu") + 1
    assert now() == 1 and x.device.index == 1 and stream_of() == there
    with here:
        y = x.to("tpu") * 2
        assert now() == 0 and y.device.index == 0 and stream_of(0) == here
    assert now() == 1 and stream_of() == there
event = there.record_event()
assert event.device.index == 1
here.wait_event(event)
here.wait_stream(there)
assert now() == 0 and (stream_of(0), stream_of(1)) == before
assert y.tolist() == [2, 4, 6] and x.tolist() == [1, 2, 3]
""")
