"""What PyTorch's own example device is tested for under torch.compile, on this one: how a device is
known to Dynamo, when a function is compiled again, and what a graph takes with it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.backends.registry import list_backends
from torch._dynamo.device_interface import get_interface_for_device
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode


def test_the_backend_and_the_interface_are_known():
    assert "tpu" in list_backends(exclude_tags=())
    torch.compile(lambda x: x, backend="tpu")  # from here on: until then it is PyTorch's own
    interface = get_interface_for_device("tpu")
    assert interface.is_available() and interface.device_count() == torch.tpu.device_count()
    assert interface.current_device() == torch.tpu.current_device() == 0


def test_a_graph_knows_the_device_of_its_tensors():
    seen: list[torch.device] = []

    def look(module: torch.fx.GraphModule, inputs: Any) -> Any:
        values = [node.meta.get("example_value") for node in module.graph.nodes]
        seen.extend(one.device for one in values if isinstance(one, torch.Tensor))
        return module.forward

    x = torch.arange(4.0, device="tpu")
    assert (torch.compile(lambda x: x + 1, backend=look)(x) == x + 1).all()
    assert len(seen) == 2 and {device.type for device in seen} == {"tpu"}
    with FakeTensorMode():
        made = torch.empty(3, 3, device="tpu") + 1
        assert made.device.type == "tpu" and made.shape == (3, 3)


@pytest.mark.parametrize(("dynamic", "frames"), [(None, 2), (False, 3), (True, 1)])
def test_another_size_compiles_as_often_as_elsewhere(dynamic: bool | None, frames: int):
    counter = CompileCounterWithBackend("tpu")
    run = torch.compile(lambda x: x * 2 + 1, backend=counter, dynamic=dynamic)
    for size in (4, 4, 8, 8, 12):
        x = torch.arange(float(size), device="tpu")
        assert torch.equal(run(x).cpu(), x.cpu() * 2 + 1)
    assert counter.frame_count == frames


def test_a_move_to_the_host_breaks_no_graph_and_an_explicit_break_does():
    moved = torch.compile(lambda x: (x + 1).cpu() * 2, backend="tpu", fullgraph=True)
    counter = CompileCounterWithBackend("tpu")

    @torch.compile(backend=counter)
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    x = torch.arange(4.0, device="tpu")
    for _ in range(3):
        found = moved(x)
        assert found.device.type == "cpu" and found.tolist() == [2.0, 4.0, 6.0, 8.0]
        assert broken(x).tolist() == [2.0, 4.0, 6.0, 8.0]
    assert counter.frame_count == 2


def test_what_is_set_inside_of_a_function_holds_there():
    @torch.compile(backend="tpu")
    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("tpu", dtype=torch.float16):
            return x @ y

    x, y = torch.ones(2, 3, device="tpu"), torch.ones(3, 3, device="tpu")
    for _ in range(3):
        assert product(x, y).dtype is torch.float16 and product(x, y).tolist() == [[3.0] * 3] * 2
        assert (x @ y).dtype is torch.float32

    made = torch.compile(lambda x: x + torch.ones(3), backend="tpu")
    with torch.device("tpu"):
        assert made(x).device.type == "tpu" and made(x).tolist() == [[2.0] * 3] * 2


def test_the_state_of_the_generator_goes_on_in_compiled_calls():
    run = torch.compile(lambda x: x + torch.rand_like(x), backend="tpu")
    x = torch.zeros(5, device="tpu")
    torch.tpu.manual_seed_all(42)
    assert torch.tpu.initial_seed() == 42
    run(x)
    state, every = torch.tpu.get_rng_state(), torch.tpu.get_rng_state_all()
    first = run(x).tolist()
    assert run(x).tolist() != first
    for _ in range(3):
        torch.tpu.set_rng_state(state)
        assert run(x).tolist() == first
    assert not torch.equal(torch.tpu.get_rng_state(), state)
    torch.tpu.set_rng_state_all(every)
    assert run(x).tolist() == first


def test_results_outlive_the_graph_and_an_emptied_cache():
    run = torch.compile(lambda x: (x * 2, x.view(-1)[1:]), backend="tpu")
    x = torch.arange(4.0, device="tpu").reshape(2, 2)
    doubled, view = run(x)
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    del run, x
    torch._dynamo.reset()
    torch.tpu.empty_cache()
    assert doubled.tolist() == [[0.0, 2.0], [4.0, 6.0]] and view.tolist() == [1.0, 2.0, 3.0]
    view.add_(1)
    assert view.tolist() == [2.0, 3.0, 4.0]
