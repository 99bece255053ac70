"""What a compiled function must keep: views, aliases, mutations, random numbers, breaks, modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fuse
from fuse.compile.runner import Runner, inferred_orders, laid
from tests.compile.harness import Compile, calls_of, compare_with_cpu
from tests.lanes import only_in

CALLS = 6


def times(function: Callable[[], Any], count: int = CALLS) -> list[Any]:
    return [torch.utils._pytree.tree_map(kept, function()) for _ in range(count)]


def kept(value: Any) -> Any:
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value


def test_a_model_in_evaluation(mode: str):
    def program(device: torch.device, compile: Compile) -> Any:
        net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(device).eval()
        net = compile(net)
        with torch.no_grad():
            return [net(torch.full((3, 8), float(n)).to(device)).cpu() for n in range(CALLS)]

    compare_with_cpu(program)


def test_what_is_pending_is_read():
    def program(device: torch.device, compile: Compile) -> Any:
        function = compile(lambda x, y: (x @ y).relu() + 1)
        a = torch.randn(4, 4).to(device)
        results = []
        for _ in range(CALLS):
            b = a * 2 + 1  # pending when the compiled function reads it
            results.append(function(b, a) - b)
        return results

    compare_with_cpu(program)


@only_in("compiled", "accelerator", reason="a graph is captured where it is compiled")
def test_a_graph_that_raises_is_captured_the_next_time(monkeypatch: pytest.MonkeyPatch):
    """What a failing call has begun to capture ends with it, for that graph and for others."""

    def interrupted(self: Runner, node: torch.fx.Node) -> Any:
        def call(*args: Any) -> Any:
            if "relu" in str(node.target) and interrupts:
                raise KeyboardInterrupt
            return called(*args)

        called = function(self, node)
        return call

    function, interrupts = Runner.function, True
    broken = torch.compile(lambda x: (x * 3).relu() * 2, backend="tpu")
    other = torch.compile(lambda x: (x * 5).sigmoid(), backend="tpu")
    x = torch.ones(4, device="tpu")
    monkeypatch.setattr(Runner, "function", interrupted)
    for captures in (1, 0):
        with pytest.raises(KeyboardInterrupt):
            broken(x)
        counts = calls_of(lambda: other(x).tolist())
        assert (counts["captures"], counts["by_operation"]) == (captures, 0), counts
    interrupts = False
    counts = calls_of(lambda: [broken(x).tolist() for _ in range(CALLS)])
    assert (counts["captures"], counts["by_operation"]) == (1, 0), counts
    assert broken(x).tolist() == [6.0] * 4


def test_results_lie_in_memory_as_their_graph_was_traced():
    """Views that were chosen for that order need it; what shares memory is left alone."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    given = torch.arange(6.0).reshape(2, 3).to("tpu")
    for target, strides in (
        (torch.ops.aten.clone.default, (1, 2)),
        (torch.ops.aten.t.default, (3, 1)),
    ):
        node = graph.call_function(target, (x,))
        node.meta["val"] = torch.empty_strided((2, 3), (1, 2), device="meta")
        made = laid(given, inferred_orders(node))
        assert made.stride() == strides and made.tolist() == given.tolist()
    node = graph.call_function(torch.ops.aten.clone.default, (x,))
    node.meta["val"] = (torch.empty_strided((2, 3), (1, 2), device="meta"), 7)
    other, number = laid((given, 7), inferred_orders(node))
    assert other.stride() == (1, 2) and torch.equal(other, given) and number == 7


def test_inputs_are_mutated():
    def program(device: torch.device, compile: Compile) -> Any:
        @compile
        def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.mul_(2)
            y[1:3].add_(x[:2])
            return x + y

        x, y = torch.ones(4, 3).to(device), torch.zeros(4, 3).to(device)
        view = y[2]
        return times(lambda: (function(x, y), x, y, view))

    compare_with_cpu(program)


def test_inputs_that_are_views_of_one_memory():
    def program(device: torch.device, compile: Compile) -> Any:
        @compile
        def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            a.add_(1)
            return a.sum() + b.sum()

        base = torch.arange(12.0).to(device)
        return times(lambda: (function(base[:8], base[4:]), base))

    compare_with_cpu(program)


def test_results_alias_inputs_and_each_other():
    def program(device: torch.device, compile: Compile) -> Any:
        @compile
        def function(x: torch.Tensor) -> Any:
            y = x * 2
            return x, x.t(), y, y[0], x.view(-1)[1:], None, 3

        x = torch.randn(3, 4).to(device)

        def once() -> Any:
            same, turned, y, row, flat, nothing, three = function(x)
            turned.add_(1)
            y.add_(1)
            flat.mul_(0.5)
            assert same is x
            assert nothing is None and three == 3
            return x, same, turned, y, row, flat

        return times(once)

    compare_with_cpu(program)


def test_strided_and_offset_inputs():
    def program(device: torch.device, compile: Compile) -> Any:
        function = compile(lambda x: x.sin() + x.sum(0))
        base = torch.randn(6, 8).to(device)
        views = [base.t(), base[1:, ::2], base[2:], base.expand(2, 6, 8)[1], base.flip(0)]
        return [function(view) for _ in range(3) for view in views]

    compare_with_cpu(program)


def test_compiled_and_eager_draw_the_same_numbers(mode: str):
    def function(x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(x, 0.5) + torch.rand_like(x) + torch.randn(4, device=x.device)
        return y * torch.bernoulli(torch.full_like(x, 0.3)) + torch.randint(
            0, 9, (4,), device="tpu"
        )

    x = torch.ones(3, 4, device="tpu")
    compiled = torch.compile(function, backend="tpu")
    for run in (function, compiled, compiled, compiled):
        torch.manual_seed(7)
        found = [run(x).cpu() for _ in range(3)]
        if run is function:
            expected = found
        # The two tiers round differently.
        torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6)
    assert not torch.equal(expected[0], expected[1])


def test_dropout_in_training_draws_as_eager():
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)).to("tpu")
    x = torch.ones(3, 4, device="tpu")
    compiled = torch.compile(net)
    for run in (net, compiled, compiled):
        torch.manual_seed(3)
        found = []
        for _ in range(3):
            net.zero_grad()
            run(x).sum().backward()
            found.append(net[0].weight.grad.cpu().clone())
        if run is net:
            expected = found
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype):
    net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 2)).to("tpu")
    x = torch.randn(4, 8, device="tpu")

    def step(run: Any) -> Any:
        net.zero_grad()
        with torch.autocast("tpu", dtype=dtype):
            y = run(x)
        y.float().sum().backward()
        return y.detach().cpu(), net[0].weight.grad.cpu().clone()

    expected = step(net)
    compiled = torch.compile(net)
    for _ in range(3):
        found = step(compiled)
        assert found[0].dtype is expected[0].dtype is dtype
        torch.testing.assert_close(found[0], expected[0], rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(found[1], expected[1], rtol=2e-2, atol=2e-2)


def test_graph_breaks_and_hooks():
    def program(device: torch.device, compile: Compile) -> Any:
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).to(device)
        seen: list[int] = []
        net[1].register_forward_hook(lambda module, inputs, result: result * 2)

        @compile
        def function(x: torch.Tensor) -> torch.Tensor:
            y = net(x)
            if y.sum().item() > 0:  # a break: the graph is split here
                y = y + 1
            seen.append(1)
            return y.exp()

        return times(lambda: function(torch.ones(2, 4).to(device)))

    compare_with_cpu(program)


def test_tensors_of_the_host_within_a_graph():
    def program(device: torch.device, compile: Compile) -> Any:
        @compile
        def function(x: torch.Tensor, scale: torch.Tensor, table: torch.Tensor) -> Any:
            y = x * (scale * 2 + 1)
            moved = (table + 1).to(device)
            z = y + moved
            return z, z.sum().cpu() + table.sum(), torch.tensor([1.0, 2.0, 3.0], device=device) + z

        x = torch.ones(2, 3).to(device)
        return [
            [part.cpu() for part in function(x, torch.tensor(float(n)), torch.full((3,), n * 1.0))]
            for n in range(CALLS)
        ]

    compare_with_cpu(program)


def test_numbers_that_change():
    def program(device: torch.device, compile: Compile) -> Any:
        function = compile(lambda x, factor: x * factor + factor)
        x = torch.ones(3).to(device)
        return [function(x, 0.5 * n).cpu() for n in range(CALLS)]

    compare_with_cpu(program)


@pytest.mark.parametrize("options", [{"mode": "reduce-overhead"}, {"mode": "max-autotune"},
                                     {"fullgraph": True}, {"dynamic": False}])  # fmt: skip
def test_what_torch_compile_takes(options: dict[str, Any]):
    def program(device: torch.device, compile: Compile) -> Any:
        function = compile(lambda x: (x * 2).softmax(-1))
        results = []
        for n in range(CALLS):
            torch.compiler.cudagraph_mark_step_begin()
            results.append(function(torch.arange(4.0).to(device) + n))
        return results

    compare_with_cpu(program, **options)


def test_gradients_of_gradients_are_refused_in_pytorchs_words():
    function = torch.compile(lambda x: (x**3).sum())
    x = torch.ones(3, device="tpu", requires_grad=True)
    (first,) = torch.autograd.grad(function(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        first.sum().backward()


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_compiled_autograd():
    def program(device: torch.device, compile: Compile) -> Any:
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
        x = torch.ones(3, 4).to(device)

        def step() -> Any:
            net.zero_grad()
            net(x).sum().backward()
            return [p.grad for p in net.parameters()]

        if device.type == "cpu":
            return times(step)
        with torch._dynamo.config.patch(compiled_autograd=True):
            return times(compile(step))

    compare_with_cpu(program, runs=1)


@pytest.mark.parametrize("options", [{}, {"backend": "inductor"}, {"mode": "max-autotune"}])
def test_inductor_and_no_backend_are_ours_on_the_device(options: dict[str, str]):
    function = torch.compile(lambda x: x.sin() + 1, **options)
    x = torch.ones(3, device="tpu")
    found = calls_of(lambda: [function(x) for _ in range(3)])
    assert found["calls"] == 3
    assert found["graphs"] == {"inference": 1}

    @torch.compile(**options)
    def decorated(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    assert decorated(x).tolist() == [3.0] * 3


@only_in("compiled", "accelerator", reason="counts cuts")
def test_a_known_place_is_one_step_of_the_recorder():
    function = torch.compile(lambda x: ((x * 2).relu() + 1).sum(0), backend="tpu")
    x = torch.ones(3, 4, device="tpu")
    x.cpu()
    first = calls_of(lambda: function(x))
    assert (first["captures"], first["by_operation"]) == (1, 0)
    later = calls_of(lambda: [function(x) for _ in range(5)])
    assert (later["calls"], later["captures"], later["by_operation"]) == (5, 0, 0)
    stats = fuse.stats()
    assert stats["compiles"] == 0
    assert stats["cuts"] == {"compiled": 5}


@only_in("compiled", "accelerator", reason="counts cuts")
def test_what_surrounds_an_inference_graph_does_not_compile_it_again():
    function = torch.compile(lambda x: (x * 2).relu().sum(0), backend="tpu")
    x = torch.ones(3, 4, device="tpu")
    function(x)
    other = torch.ones(5, device="tpu") * 3  # recorded, and nothing to the function
    text = fuse.explain(lambda: function(x))
    assert "compiled" in str(text)
    fuse.reset_stats()
    other = other + 1
    result = function(x)
    assert fuse.stats()["cuts"] == {"compiled": 2}
    assert result.tolist() == [6.0] * 4


def test_debug_eager_names_the_line_of_the_operation(mode: str):
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y.log().sum()

    x = torch.ones(3, device="tpu")
    text = str(fuse.explain(lambda: torch.compile(function, backend="tpu")(x)))
    assert "test_semantics.py:" in text


def test_an_operator_that_runs_on_the_host():
    def program(device: torch.device, compile: Compile) -> Any:
        function = compile(lambda x: torch.special.zeta(x + 2, x + 1) * 2)
        return times(lambda: function(torch.arange(1.0, 4.0).to(device)))

    compare_with_cpu(program)


def test_the_numpy_backend():
    before = fuse.get_backend()
    try:
        fuse.set_backend("numpy")
        test_inputs_are_mutated()
        torch._dynamo.reset()
        test_results_alias_inputs_and_each_other()
    finally:
        fuse.set_backend(before)


def test_the_backend_may_change_between_calls():
    function = torch.compile(lambda x: x * 2 + 1, backend="tpu")
    x = torch.ones(3, device="tpu")
    before = fuse.get_backend()
    try:
        for backend in ("numpy", "xla", "numpy"):
            fuse.set_backend(backend)
            assert function(x).tolist() == [3.0] * 3
    finally:
        fuse.set_backend(before)


FACTOR = {"now": 0.0}


@torch.library.custom_op("fuse_state::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR["now"]


@scaled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("fuse_state::add_", mutates_args=("x",))
def add_(x: torch.Tensor) -> None:
    x.add_(FACTOR["now"])


def written(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    add_(y)
    return y


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", [lambda x: scaled(x) + 1, written], ids=["made", "written"])
def test_an_operator_that_reads_more_than_its_arguments_is_called_every_time(
    program: Callable[[torch.Tensor], torch.Tensor], dynamic: bool
):
    function = torch.compile(program, backend="tpu", dynamic=dynamic)
    for call in range(8):
        FACTOR["now"] = float(call)
        x = torch.ones(3 + call * dynamic, device="tpu")
        torch.testing.assert_close(function(x).cpu(), torch.ones_like(x, device="cpu") + call * 1.0)
    reasons = fuse.stats()["compiled"]["reasons"]
    assert any("may read more than its arguments" in reason for reason in reasons)
