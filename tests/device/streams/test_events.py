"""Events and streams: a position in the one queue, which waits only when it is asked to."""

from __future__ import annotations

import torch

import fuse
from tests.lanes import only_in


def synchronised() -> int:
    return int(fuse.stats()["cuts"].get("synchronize", 0))


@only_in("compiled", "accelerator", reason="counts cuts")
def test_recording_an_event_hands_nothing_on() -> None:
    before = synchronised()
    x = torch.ones(3, device="tpu") + 1
    event = torch.tpu.Event()
    assert event.record() is event
    stream = torch.tpu.Stream(priority=-1)
    other = stream.record_event()
    torch.tpu.current_stream().wait_event(other)
    torch.tpu.current_stream().wait_stream(stream)
    x.record_stream(stream)
    y = x * 2
    assert synchronised() == before
    event.synchronize()
    assert synchronised() == before + 1
    assert y.tolist() == [4.0] * 3


@only_in("compiled", "accelerator", reason="counts cuts")
def test_a_query_hands_on_what_came_before_and_nothing_else() -> None:
    torch.tpu.synchronize()
    before = synchronised()
    event = torch.tpu.Event()
    assert event.query()  # never recorded
    event.record()
    assert event.query()
    x = torch.ones(4, device="tpu") * 3
    assert event.query()
    assert synchronised() == before
    later = torch.tpu.Event().record()
    while not later.query():
        pass
    assert synchronised() == before + 1
    assert x.tolist() == [3.0] * 4


@only_in("compiled", "accelerator", reason="counts cuts")
def test_an_event_that_times_waits() -> None:
    before = synchronised()
    torch.tpu.init()
    first, second = (torch.tpu.Event(enable_timing=True) for _ in range(2))
    first.record()
    x = torch.ones(100, 100, device="tpu") @ torch.ones(100, 100, device="tpu")
    second.record()
    assert synchronised() == before + 1  # nothing had been recorded before the first
    assert first.elapsed_time(second) > 0
    assert x[0, 0].item() == 100.0
