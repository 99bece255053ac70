"""torch.accelerator.Graph: what a stream records from a capture's begin to its end, run again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fuse
from fuse.device import lazy
from tests.device.helpers import DEVICE, run

pytestmark = pytest.mark.skipif(
    not hasattr(torch.accelerator, "Graph"), reason="PyTorch has graphs from 2.13 on"
)


def captured(body: Callable[[], object]) -> torch.accelerator.Graph:
    graph = torch.accelerator.Graph()
    with graph:
        body()
    return graph


def refused(body: Callable[[], object], match: str) -> None:
    """The call raises at its place in a capture, which then is none."""
    graph = torch.accelerator.Graph()
    with (
        pytest.raises(RuntimeError, match=f"the graph was not captured.*{match}"),
        graph,
        pytest.raises(RuntimeError, match=f"a graph is being captured.*{match}"),
    ):
        body()
    with pytest.raises(RuntimeError, match="has not been captured"):
        graph.replay()


FIRST = """
import torch
graph = torch.accelerator.Graph()
x = torch.ones(2, device="tpu")
with graph:
    x += 1
graph.replay()
print(x.tolist(), type(torch.accelerator.Graph()) is torch.accelerator.Graph)
"""


def test_a_graph_may_be_a_programs_first_use_of_the_device():
    assert run(FIRST) == "[2.0, 2.0] True\n"


def test_nothing_runs_before_the_first_replay():
    x = torch.ones(4, device=DEVICE)
    graph = captured(lambda: x.add_(1))
    assert x.tolist() == [1.0] * 4
    graph.replay()
    assert x.tolist() == [2.0] * 4


def test_a_replay_reads_present_values_and_writes_the_same_tensors():
    x, weights = torch.zeros(3, device=DEVICE), torch.full((3,), 2.0, device=DEVICE)
    with torch.accelerator.Graph() as _:
        pass  # an empty one
    graph = torch.accelerator.Graph()
    with graph:
        product = x * weights
        weights += 1
    seen = product.view(3, 1)
    for step in range(100):
        x.fill_(step)
        graph.replay()
        assert product.tolist() == [step * (step + 2.0)] * 3
        assert seen.flatten().tolist() == product.tolist()
        assert weights.tolist() == [step + 3.0] * 3


def test_memory_without_values_is_read_as_it_is_at_the_replay():
    x = torch.empty(2, 2, device=DEVICE)
    graph = torch.accelerator.Graph()
    with graph:
        inner = torch.empty(2, 2, device=DEVICE)
        inner.copy_(x)
        total = inner.sum() + x[1].sum()
    x.copy_(torch.arange(4.0).view(2, 2))
    graph.replay()
    assert total.item() == 11.0


def test_what_dies_lives_on_in_the_graph():
    x = torch.zeros(3, device=DEVICE)
    state = torch.ones(3, device=DEVICE)
    graph = torch.accelerator.Graph()
    with graph:
        state *= 2
        x += state
    del state
    for _ in range(3):
        graph.replay()
    assert x.tolist() == [14.0] * 3


def test_what_a_graph_made_dies_with_its_last_holder():
    x = torch.ones(1 << 16, device=DEVICE)
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    graph = torch.accelerator.Graph()
    with graph:
        made = x + 1
    graph.replay()
    del graph
    assert made.sum().item() == 2 * (1 << 16)
    del made
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() == before


def test_replays_draw_what_calls_would():
    x = torch.zeros(5, device=DEVICE)
    torch.manual_seed(3)
    drawn = [(torch.rand(5, device=DEVICE), F.dropout(x + 1, 0.5)) for _ in range(4)]
    torch.manual_seed(3)
    graph = torch.accelerator.Graph()
    with graph:
        uniform, dropped = torch.rand(5, device=DEVICE), F.dropout(x + 1, 0.5)
    for expected in drawn:
        graph.replay()
        torch.testing.assert_close((uniform, dropped), expected, rtol=0, atol=0)


def model_and_optimizer(device: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(device)
    capturable = {} if device == "cpu" else {"capturable": True}
    return model, torch.optim.Adam(model.parameters(), lr=0.01, **capturable)


def test_a_training_step_trains_as_on_the_cpu():
    batches = [(torch.randn(6, 8), torch.randint(4, (6,))) for _ in range(12)]
    model, optimizer = model_and_optimizer("cpu")
    expected = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    model, optimizer = model_and_optimizer(DEVICE)
    x, y = (part.to(DEVICE) for part in batches[0])

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    for batch in batches[:2]:  # as on CUDA: optimizers make their state at the first step
        x.copy_(batch[0])
        y.copy_(batch[1])
        losses.append(step().item())
    graph = torch.accelerator.Graph()
    with graph:
        loss = step()
    for batch in batches[2:]:
        x.copy_(batch[0])
        y.copy_(batch[1])
        graph.replay()
        losses.append(loss.item())
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)


def test_forward_and_backward_are_graphs_of_their_own():
    """What ``torch.cuda.make_graphed_callables`` does."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).to(DEVICE)
    weights = tuple(model.parameters())
    static = torch.zeros(3, 4, device=DEVICE, requires_grad=True)
    forward, backward = torch.accelerator.Graph(), torch.accelerator.Graph()
    with forward:
        made = model(static)
    incoming = torch.zeros_like(made)
    with backward:
        gradients = torch.autograd.grad((made,), (static, *weights), (incoming,))

    class Graphed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *_):
            static.detach().copy_(x)
            forward.replay()
            return made.detach().clone()

        @staticmethod
        def backward(ctx, gradient):
            incoming.copy_(gradient)
            backward.replay()
            return tuple(one.clone() for one in gradients)

    for _ in range(6):
        given = torch.randn(3, 4)
        x = given.to(DEVICE).requires_grad_()
        model.zero_grad()
        Graphed.apply(x, *weights).square().sum().backward()
        found = [x.grad, *(one.grad for one in weights)]
        model.zero_grad()
        y = given.to(DEVICE).requires_grad_()
        model(y).square().sum().backward()
        for one, other in zip(found, [y.grad, *(one.grad for one in weights)], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_graph_on_a_stream_of_its_own():
    side = torch.Stream(device=DEVICE)
    x = torch.ones(3, device=DEVICE)
    graph = torch.accelerator.Graph()
    with side, graph:
        y = x * 3
    x.fill_(2)
    graph.replay()
    assert y.tolist() == [6.0] * 3


def test_one_graph_reads_what_another_makes():
    x = torch.ones(3, device=DEVICE)
    first, second = torch.accelerator.Graph(), torch.accelerator.Graph()
    with first:
        y = x + 1
    with second:
        z = y * 2
    for value in range(6):
        x.fill_(value)
        first.replay()
        second.replay()
        assert z.tolist() == [2.0 * (value + 1)] * 3


def test_a_replay_waits_for_nothing_that_came_before_it_in_vain():
    """What calls recorded before it, and after it, happen in their order."""
    x = torch.zeros(3, device=DEVICE)
    graph = captured(lambda: x.mul_(2))
    for _ in range(3):
        x.add_(1)
        graph.replay()
    x.add_(1)
    assert x.tolist() == [15.0] * 3


def test_other_modes_and_forgotten_streams_change_nothing():
    x = torch.ones(3, device=DEVICE)
    graph = captured(lambda: x.mul_(2))
    graph.replay()
    for mode in (fuse.StrictEager(), fuse.DebugEager()):
        with mode:
            graph.replay()
    lazy.core().forget()
    graph.replay()
    assert x.tolist() == [16.0] * 3


def test_another_backend_goes_on_with_the_graph():
    x = torch.ones(3, device=DEVICE)
    graph = captured(lambda: x.mul_(2))
    graph.replay()
    name = fuse.get_backend()
    try:
        fuse.set_backend("numpy")
        graph.replay()
        assert x.tolist() == [4.0] * 3
    finally:
        fuse.set_backend(name)
    graph.replay()
    assert x.tolist() == [8.0] * 3


# What a capture cannot hold


def test_a_host_read_is_refused_at_the_call():
    x = torch.ones(3, device=DEVICE)
    refused(lambda: x.sum().item(), "it reads a value on the host")
    refused(lambda: x.nonzero(), "it reads a value on the host|runs on the host")
    refused(lambda: bool((x > 0).all()), "it reads a value on the host")
    assert (x + 1).tolist() == [2.0] * 3


def test_a_value_of_the_host_is_refused():
    x = torch.ones(3, device=DEVICE)
    refused(lambda: x.copy_(torch.zeros(3)), "it writes a value that the host has")
    assert x.tolist() == [1.0] * 3


def test_waiting_for_the_device_is_refused():
    refused(torch.tpu.synchronize, "it waits for the device")


def test_a_call_that_runs_on_the_host_is_refused():
    x = torch.eye(3, device=DEVICE)
    refused(lambda: torch.linalg.ldl_factor(x), "aten::linalg_ldl_factor_ex runs on the host")


def test_an_optimizer_that_counts_its_steps_on_the_host_is_refused():
    weights = nn.Parameter(torch.ones(3, device=DEVICE))
    weights.grad = torch.ones(3, device=DEVICE)
    optimizer = torch.optim.Adam([weights])
    optimizer.step()
    refused(optimizer.step, "capturable=True")


def test_captures_do_not_nest_and_end_where_they_began():
    graph, inner = torch.accelerator.Graph(), torch.accelerator.Graph()
    with graph, pytest.raises(RuntimeError, match="has begun on this stream already"):
        inner.capture_begin()
    with pytest.raises(RuntimeError, match=r"has been captured; reset\(\) it first"):
        graph.capture_begin()
    graph.reset()
    with pytest.raises(RuntimeError, match="capture_end without a capture_begin"):
        inner.capture_end()
    x = torch.ones(3, device=DEVICE)
    with graph:
        x += 1
    graph.replay()
    assert x.tolist() == [2.0] * 3


def test_a_capture_that_is_lost_ends_by_itself():
    graph = torch.accelerator.Graph()
    graph.capture_begin()
    x = torch.ones(3, device=DEVICE) + 1
    del graph
    assert x.shape == (3,)
    assert (torch.ones(3, device=DEVICE) + 1).tolist() == [2.0] * 3


def test_what_the_failed_capture_would_have_made_is_not_lost_to_others():
    x = torch.ones(3, device=DEVICE)
    refused(lambda: x.add_(1).sum().item(), "it reads a value on the host")
    assert x.tolist() == [1.0] * 3


def test_a_pool_has_a_name_that_graphs_share():
    first = captured(lambda: torch.ones(3, device=DEVICE))
    second = torch.accelerator.Graph(pool=first.pool())
    with second:
        torch.ones(3, device=DEVICE)
    assert second.pool() == first.pool()
    assert captured(lambda: torch.ones(3, device=DEVICE)).pool() != first.pool()


def test_a_dump_draws_the_calls(tmp_path: Path):
    x = torch.ones(3, device=DEVICE)
    graph = torch.accelerator.Graph()
    with graph:
        (x * 2).relu()
    with pytest.raises(RuntimeError, match=r"unless enable_debug_mode\(\) was called"):
        graph.debug_dump(str(tmp_path / "graph.dot"))
    graph.enable_debug_mode()
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert text.startswith("digraph {") and text.count("v0 [shape=ellipse") == 1
    assert "mul.Tensor" in text and "n0 -> n1" in text and "test_graphs.py" in text
    with pytest.raises(RuntimeError, match="cannot write"):
        graph.debug_dump(str(tmp_path / "none" / "graph.dot"))
