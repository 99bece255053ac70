"""Kernels in graphs: fake tensors, make_fx, torch.export, torch.compile."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import fuse
from tests.device.helpers import DEVICE


@fuse.kernel(name="fuse_tests::silu")
def silu(x, w, *, scale=1.0):
    return x * jax.nn.sigmoid(scale * x) * w


@fuse.kernel(name="fuse_tests::both")
def both(x) -> tuple[jax.Array, jax.Array]:
    return jnp.concatenate([x, x]), x.reshape(-1)


@fuse.kernel(donate=("x",), name="fuse_tests::times_")
def times_(x, w):
    return x * w


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, w: torch.Tensor) -> Any:
        doubled, flat = both(silu(x, w, scale=2.0))
        return doubled + 1, flat * 2


@pytest.fixture
def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 8), torch.randn(8)


# PyTorch's checks look at gradients of tensors that are no leaves, from 2.15 on.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("name", ["silu", "times_"])
def test_pytorchs_own_checks_of_operators(tensors, name):
    x, w = tensors
    operator = getattr(torch.ops.fuse_tests, name).default
    checks = torch.library.opcheck(operator, (x.clone(), w))
    assert set(checks.values()) == {"SUCCESS"}
    if name == "silu":
        checks = torch.library.opcheck(operator, (x.clone().requires_grad_(), w), {"scale": 2.0})
        assert set(checks.values()) == {"SUCCESS"}


def test_sizes_stay_symbols(tensors):
    graph = make_fx(Model(), tracing_mode="symbolic", _allow_non_fake_inputs=False)(*tensors)
    shapes = {
        str(node.target): node.meta["val"] for node in graph.graph.nodes if node.op != "output"
    }
    doubled, flat = shapes["fuse_tests.both.default"]
    rows, columns = shapes["fuse_tests.silu.default"].shape
    assert isinstance(rows, torch.SymInt)
    assert doubled.shape[0].node.expr == 2 * rows.node.expr
    assert flat.shape[0].node.expr == rows.node.expr * columns.node.expr


def test_a_function_that_asks_for_a_size_gets_it(tensors):
    @fuse.kernel(name="fuse_tests::halves")
    def halves(x):
        return sum(x[i : i + 2].sum(0) for i in range(0, x.shape[0], 2))

    graph = make_fx(halves, tracing_mode="symbolic")(tensors[0])
    torch.testing.assert_close(graph(tensors[0]), tensors[0].sum(0))


@pytest.mark.parametrize("device", ["cpu", DEVICE], ids=str)
def test_export(tensors, device):
    model = Model()
    batch = torch.export.Dim("batch", min=2, max=64)
    given = tuple(tensor.to(device) for tensor in tensors)
    program = torch.export.export(model, given, dynamic_shapes={"x": {0: batch}, "w": None})
    called = [str(node.target) for node in program.graph.nodes if "fuse_tests" in str(node.target)]
    assert called == ["fuse_tests.silu.default", "fuse_tests.both.default"]
    other = torch.randn(7, 8)
    found = program.module()(other.to(device), given[1])
    for made, wanted in zip(found, model(other, tensors[1]), strict=True):
        torch.testing.assert_close(made.cpu(), wanted)


@pytest.mark.parametrize("dynamic", [False, True])
def test_dynamo_takes_single_tensors_into_its_graph(tensors, dynamic):
    compiled = torch.compile(Model(), backend="aot_eager", fullgraph=True, dynamic=dynamic)
    x, w = (tensor.clone().requires_grad_() for tensor in tensors)
    sum(map(torch.sum, compiled(x, w))).backward()
    other = [tensor.clone().requires_grad_() for tensor in tensors]
    sum(map(torch.sum, Model()(*other))).backward()
    torch.testing.assert_close(x.grad, other[0].grad)
    torch.testing.assert_close(w.grad, other[1].grad)


def test_dynamo_sees_what_is_overwritten(tensors):
    def program(x, w):
        y = x * 2
        return times_(y, w) + y

    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*tensors), program(*tensors))


def test_dynamo_breaks_the_graph_where_jax_takes_trees_apart(tensors):
    tree = fuse.kernel(lambda p: {"a": p["x"] + 1}, name="fuse_tests::tree")

    def program(x):
        return fuse.jax_call(lambda a: jnp.sin(a), tree({"x": x * 2})["a"]) * 3

    compiled = torch.compile(program, backend="aot_eager")
    torch.testing.assert_close(compiled(tensors[0]), program(tensors[0]))
    assert torch._dynamo.explain(program)(tensors[0]).graph_break_count >= 1
