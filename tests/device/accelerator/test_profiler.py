"""``torch.profiler`` over the device's calls: ranges, shapes, passes, and results that stay."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from tests.device.helpers import DEVICE
from tests.programs.harness import CPU, run

pytestmark = pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")


def profiled(program: Any, device: torch.device, **options: Any) -> tuple[Any, profile]:
    """What a program returns under the host's profiler, and the profile; calls are known by then:
    what is asked about a first one is in a profile as well."""
    run(program, device)
    with profile(activities=[ProfilerActivity.CPU], **options) as prof:
        result = run(program, device)
    return result, prof


def training(device: torch.device) -> Any:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    x = torch.randn(3, 4).to(device)
    with record_function("forward"):
        with record_function("model"):
            y = model(x)
        with record_function("loss"):
            loss = y.square().mean()
    with record_function("backward"):
        loss.backward()
    return loss, [one.grad for one in model.parameters()]


def around(event: Any) -> list[str]:
    """The ranges of the program's that an event lies in, the inmost first."""
    found = []
    while (event := event.cpu_parent) is not None:
        if not event.name.startswith(("aten::", "autograd::", "Profiler")):
            found.append(event.name)
    return found


def test_ranges_nest_and_hold_the_calls_made_in_them():
    _, prof = profiled(training, DEVICE)
    events = list(prof.events())
    (model,) = (one for one in events if one.name == "model")
    assert around(model) == ["forward"]
    tanh = [one for one in events if one.name == "aten::tanh"]
    assert [around(one) for one in tanh] == [["model", "forward"]]
    assert [around(one) for one in events if one.name == "aten::mean"] == [["loss", "forward"]]


def test_the_nodes_of_a_backward_pass_are_the_cpus():
    nodes = []
    for device in (CPU, DEVICE):
        _, prof = profiled(training, device)
        names = [one.name for one in prof.events()]
        nodes.append(sorted(one for one in names if one.startswith("autograd::engine::evaluate")))
    assert nodes[0] == nodes[1] and len(nodes[0]) > 5


def test_shapes_are_those_of_the_calls():
    def program(device: torch.device) -> torch.Tensor:
        return torch.ones(2, 3).to(device).mm(torch.ones(3, 5).to(device)).relu()

    found = []
    for device in (CPU, DEVICE):
        _, prof = profiled(program, device, record_shapes=True)
        rows = prof.key_averages(group_by_input_shape=True)
        found.append(
            {row.key: row.input_shapes for row in rows if row.key in ("aten::mm", "aten::relu")}
        )
    assert found[1]["aten::mm"] == [[2, 3], [3, 5]]
    assert found[0] == found[1]


def test_every_call_is_counted():
    def program(device: torch.device) -> torch.Tensor:
        x = torch.ones(3).to(device)
        for _ in range(25):
            x = x.cos().sin()
        return x

    _, prof = profiled(program, DEVICE)
    counts = {row.key: row.count for row in prof.key_averages()}
    assert counts["aten::cos"] == counts["aten::sin"] == 25


@pytest.mark.parametrize("options", [{}, {"profile_memory": True}, {"with_stack": True}], ids=str)
def test_results_are_those_without_it(options: dict[str, bool]):
    plain = run(training, CPU)
    for _ in range(2):
        found, _ = profiled(training, DEVICE, **options)
        torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5)


def test_a_range_that_an_exception_leaves_is_closed():
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        with pytest.raises(RuntimeError, match="size of tensor a"), record_function("failing"):
            torch.ones(3, device=DEVICE) + torch.ones(2, device=DEVICE)
        with record_function("after"):
            torch.ones(3, device=DEVICE).exp()
    after = {one.name: one for one in prof.events()}
    assert around(after["after"]) == [] and around(after["aten::exp"]) == ["after"]
    assert "failing" in after


def test_calls_on_several_streams_are_in_one_profile():
    streams = [torch.Stream(DEVICE) for _ in range(2)]
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        for number, stream in enumerate(streams):
            with record_function(f"stream {number}"), stream:
                y = torch.full((2,), number + 1.0, device=DEVICE).square()
                stream.synchronize()
                assert y.tolist() == [(number + 1.0) ** 2] * 2
    squares = [around(one)[-1] for one in prof.events() if one.name == "aten::square"]
    assert squares == ["stream 0", "stream 1"]
