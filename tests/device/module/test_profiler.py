"""torch.profiler: what ran on the device, for how long, and which call had it run."""

from __future__ import annotations

import inspect
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.profiler import profile as older_profile
from torch.autograd.profiler_util import FunctionEvent
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from fuse.device import lazy
from tests.device.helpers import DEVICE
from tests.lanes import only_in

ACTIVITIES = (ProfilerActivity.CPU, ProfilerActivity.PrivateUse1)
chunks = only_in(
    "compiled", "accelerator", reason="by default these calls run uncompiled, as rows of the CPU"
)
native = pytest.mark.skipif(
    torch.__version__ < "2.13", reason="PyTorch takes a profiler of a device's from 2.13 on"
)
pytestmark = pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")


class Program:
    """A training step that reads its loss."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.x, self.y = torch.randn(6, 8), torch.randint(4, (6,))

    def __call__(self) -> float:
        with record_function("the step"):
            self.optimizer.zero_grad()
            made = self.model(self.x.to(DEVICE))
            loss = F.cross_entropy(made, self.y.to(DEVICE))
            loss.backward()
            self.optimizer.step()
            return loss.item()


def on_device(events: list[FunctionEvent]) -> list[FunctionEvent]:
    return [one for one in events if one.device_type == torch.autograd.DeviceType.PrivateUse1]


def trace_of(prof: profile, folder: Path) -> list[dict[str, Any]]:
    prof.export_chrome_trace(str(folder / "trace.json"))
    events: list[dict[str, Any]] = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return events


@native
@chunks
def test_three_steps_are_three_kernels_of_the_users_operations(tmp_path: Path):
    step = Program()
    for _ in range(3):
        step()
    with profile(activities=ACTIVITIES) as prof:
        losses = [step() for _ in range(3)]
    assert losses == sorted(losses, reverse=True)
    kernels = [one for one in trace_of(prof, tmp_path) if one.get("cat") == "kernel"]
    assert len(kernels) == 3
    for one in kernels:
        assert one["name"].startswith("addmm+relu+_log_softmax")
        assert one["dur"] > 0 and one["args"]["bytes"] > 0
        assert one["args"]["operations"] > 10
        assert "test_profiler.py:" in one["args"]["lines"]
    starts = [one["ts"] for one in kernels]
    assert starts == sorted(starts)


@native
@chunks
def test_rows_of_the_device_hang_on_the_calls_that_had_them_run(tmp_path: Path):
    step = Program()
    step()
    with profile(activities=ACTIVITIES) as prof:
        step()
    updates = [one for one in prof.events() if one.name.startswith("Optimizer.step#")]
    caused = {kernel.name for one in updates for kernel in one.kernels}
    assert "Memcpy HtoD" in caused
    assert any(name.startswith("addmm+relu") for name in caused)
    assert any(one.name == "the step" and one.device_time_total > 0 for one in prof.events())
    reads = [one for one in prof.events() if one.name == "aten::_local_scalar_dense"]
    assert [kernel.name for one in reads for kernel in one.kernels] == ["Memcpy DtoH"]
    events = trace_of(prof, tmp_path)
    arrows = [one for one in events if one.get("cat") == "ac2g"]
    assert sorted(one["id"] for one in arrows if one["ph"] == "s") == sorted(
        one["id"] for one in arrows if one["ph"] == "f"
    )
    names = {one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert "tpu" in names


@native
@chunks
def test_averages_have_a_time_of_the_device():
    step = Program()
    step()
    with profile(activities=ACTIVITIES) as prof:
        for _ in range(4):
            step()
    rows = {row.key: row for row in prof.key_averages()}
    (kernel,) = (row for key, row in rows.items() if key.startswith("addmm+relu"))
    assert kernel.count == 4 and kernel.self_device_time_total > 0
    table = prof.key_averages().table(sort_by="self_device_time_total")
    assert "Self TPU" in table and "addmm+relu" in table


@native
@chunks
def test_a_schedule_profiles_the_steps_that_it_says():
    step = Program()
    step()
    seen: list[int] = []

    def ready(prof: profile) -> None:
        seen.append(
            sum(one.name.startswith("addmm+relu") for one in on_device(list(prof.events())))
        )

    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(activities=ACTIVITIES, schedule=plan, on_trace_ready=ready) as prof:
        for _ in range(8):
            step()
            prof.step()
    assert seen == [2, 2]


@native
def test_what_was_recorded_before_is_not_in_it_and_what_was_within_is():
    x = torch.ones(1 << 10, device=DEVICE)
    before = x.cos()
    with profile(activities=ACTIVITIES) as prof:
        within = x.sin()
    kernels = {one.name for one in on_device(list(prof.events()))}
    assert "cos" not in kernels
    assert (before + within).shape == x.shape


@native
def test_memory_is_reported_as_of_the_device():
    x = torch.ones(1 << 10, device=DEVICE)
    torch.tpu.synchronize()
    with profile(activities=ACTIVITIES, profile_memory=True) as prof:
        y = x + 1
        y.sum().item()
    found = prof.key_averages().total_average()
    assert found.device_memory_usage >= 4 << 10


@native
def test_nothing_is_waited_for_or_written_down_without_a_profile():
    step = Program()
    with profile(activities=ACTIVITIES):
        step()
        assert lazy.engine().observer is not None
    assert lazy.engine().observer is None
    with profile(activities=[ProfilerActivity.CPU]):
        step()
        assert lazy.engine().observer is None


@native
def test_an_error_of_the_program_passes_through_a_profile():
    with pytest.raises(RuntimeError, match="size of tensor a"), profile(activities=ACTIVITIES):
        torch.ones(3, device=DEVICE) + torch.ones(2, device=DEVICE)
    assert lazy.engine().observer is None


@pytest.mark.parametrize("kineto", [False, True])
def test_the_older_profiler_takes_the_device_by_name(kineto: bool):
    step = Program()
    step()
    with older_profile(use_device="tpu", use_kineto=kineto) as prof:
        step()
    rows = {row.key: row for row in prof.key_averages()}
    assert rows["aten::relu"].count >= 1
    assert "the step" in rows
    if not kineto:  # every call is timed alone
        assert rows["aten::relu"].device_time_total > 0


@native
def test_an_interrupt_as_a_profile_ends_is_not_lost(monkeypatch: pytest.MonkeyPatch):
    """In the wait of the device's profiler, which native code calls; PyTorch's own come and go."""
    engine = lazy.engine()
    end = torch.autograd.profiler.profile.__exit__

    def wait() -> None:
        if inspect.currentframe().f_back.f_code is end.__code__:
            monkeypatch.undo()
            raise KeyboardInterrupt

    # A shell's background process ignores interrupts, and so does Python there.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), profile(activities=ACTIVITIES):
            monkeypatch.setattr(engine, "wait", wait)
    finally:
        signal.signal(signal.SIGINT, before)
    assert engine.observer is None
