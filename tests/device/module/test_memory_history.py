"""The history of memory and the statistics of pinned memory, as CUDA's users know them."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.cuda import _memory_viz

from tests.device.helpers import DEVICE, run

memory = torch.tpu.memory


@pytest.fixture(autouse=True)
def recorded() -> Iterator[None]:
    gc.collect()
    memory._record_memory_history(clear_history=True)
    yield
    memory._record_memory_history(None)


def events() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = memory._snapshot()["device_traces"][0]
    return found


def alive(events: list[dict[str, Any]]) -> dict[int, int]:
    """The bytes at each address, by the events alone; what they free must be there."""
    found: dict[int, int] = {}
    for event in events:
        if event["action"] == "alloc":
            assert found.setdefault(event["addr"], event["size"]) == event["size"]
        elif event["action"] == "free_completed":
            assert found.pop(event["addr"]) == event["size"]
    return found


def test_each_storage_is_there_once_with_the_users_line() -> None:
    kept = [torch.ones(100, device=DEVICE), torch.zeros(50, device=DEVICE)]
    view = kept[0].view(10, 10)
    gone = (view + 1).sum()
    line = test_each_storage_is_there_once_with_the_users_line.__code__.co_firstlineno + 1
    bytes_of_gone = gone.untyped_storage().nbytes()
    del gone
    snapshot = memory._snapshot()
    live = [one for one in snapshot["segments"] if one["frames"]]
    assert [one["total_size"] for one in live] == [400, 200]
    for one in live:
        frame = one["blocks"][0]["frames"][0]
        assert (frame["filename"], frame["line"]) == (__file__, line)
        assert frame["name"] == "test_each_storage_is_there_once_with_the_users_line"
    assert sum(alive(events()).values()) == 600
    sizes = [event["size"] for event in events() if event["action"] == "free_requested"]
    assert sizes == [400, bytes_of_gone]


def test_all_that_is_allocated_is_in_the_segments() -> None:
    older = torch.ones(1000, device=DEVICE)
    memory._record_memory_history(None)
    memory._record_memory_history()
    newer = torch.ones(10, device=DEVICE)
    segments = torch.tpu.memory_snapshot()
    assert sum(one["total_size"] for one in segments) == torch.tpu.memory_allocated()
    assert segments[-1]["total_size"] == newer.untyped_storage().nbytes()
    del older
    assert [one["action"] for one in events()] == ["alloc", "free_requested", "free_completed"]
    assert sum(one["total_size"] for one in torch.tpu.memory_snapshot()) == (
        torch.tpu.memory_allocated()
    )


def test_a_storage_that_grows_is_freed_and_made() -> None:
    x = torch.ones(4, device=DEVICE)
    x.resize_(100)
    assert list(alive(events()).values()) == [400]
    assert x[:4].tolist() == [1, 1, 1, 1]


def test_what_does_not_fit_is_an_event() -> None:
    with pytest.raises(torch.tpu.OutOfMemoryError):
        torch.ones(1 << 58, device=DEVICE)
    (event,) = [one for one in events() if one["action"] == "oom"]
    assert event["size"] == 1 << 60 and event["frames"][0]["filename"] == __file__


def test_a_training_step_balances() -> None:
    model = torch.nn.Linear(8, 8).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(6):
        model(torch.ones(4, 8, device=DEVICE)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    before = torch.tpu.memory_allocated()
    assert sum(one["total_size"] for one in torch.tpu.memory_snapshot()) == before
    del model, optimizer
    gc.collect()
    assert torch.tpu.memory_allocated() < before
    assert sum(alive(events()).values()) <= torch.tpu.memory_allocated()


def test_what_is_kept_is_what_was_asked_for() -> None:
    memory._record_memory_history("state", clear_history=True)
    x = torch.ones(7, device=DEVICE)
    assert events() == [] and torch.tpu.memory_snapshot()[-1]["frames"]
    memory._record_memory_history("all", context=None)
    y = torch.ones(7, device=DEVICE)
    assert [one["frames"] for one in events()] == [[]]
    memory._record_memory_history("all", context="alloc", max_entries=2, clear_history=True)
    del x, y
    z = torch.ones(9, device=DEVICE)
    found = [(one["action"], bool(one["frames"])) for one in events()]
    assert found == [("free_completed", False), ("alloc", True)]
    del z
    memory._record_memory_history(None)
    assert events() == []
    with pytest.raises(ValueError, match="memory history takes .* and not 'some' and 'all'"):
        memory._record_memory_history("some")  # type: ignore[arg-type]


def test_pytorchs_visualiser_reads_it(tmp_path: Path) -> None:
    kept = torch.ones(1 << 20, device=DEVICE)
    (kept * 2).sum().item()
    memory._dump_snapshot(tmp_path / "memory.pickle")
    data = pickle.loads((tmp_path / "memory.pickle").read_bytes())  # noqa: S301  (just written)
    assert "4.0MiB" in _memory_viz.trace(data)
    assert "total_allocated" in _memory_viz.segsum(data)
    assert "test_memory_history" in _memory_viz.memory(data, format_flamegraph=str)
    assert "Active Memory Timeline" in _memory_viz.trace_plot(data)


def test_pinned_memory_is_counted() -> None:
    gc.collect()
    torch.tpu.reset_peak_host_memory_stats()
    torch.tpu.reset_accumulated_host_memory_stats()
    before = torch.tpu.host_memory_stats()
    x = torch.ones(1000).pin_memory()
    x.to(DEVICE, non_blocking=True).sum().item()
    now = torch.tpu.host_memory_stats()
    assert now["active_bytes.current"] - before["active_bytes.current"] == 4000
    assert now["allocations.current"] - before["allocations.current"] == 1
    assert now["num_host_alloc"] == now["allocations.allocated"] == 1
    del x
    after = torch.tpu.host_memory_stats()
    assert after["active_bytes.current"] == before["active_bytes.current"]
    assert after["active_bytes.peak"] == now["active_bytes.current"]
    assert after["allocated_bytes.freed"] == 4000 and after["num_host_free"] == 1
    nested = torch.tpu.memory.host_memory_stats_as_nested_dict()
    assert nested["active_bytes"]["peak"] == after["active_bytes.peak"]


NOTHING = """
import torch
print(torch.tpu.host_memory_stats(), torch.tpu.memory._snapshot()["segments"],
      torch.tpu.memory_stats_as_nested_dict(), torch.tpu.is_initialized())
torch.tpu.reset_peak_host_memory_stats()
print(torch.backends.tpu.is_built(), torch.backends.tpu.is_available(),
      torch.backends.tpu.version().count("."), torch.tpu.is_initialized())
"""


def test_questions_start_nothing() -> None:
    assert run(NOTHING).split("\n")[:2] == ["{} [] {} False", "True True 2 False"]
