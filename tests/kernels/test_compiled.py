"""Kernels where the device compiles whole graphs, and where a chunk is compiled for a TPU."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from jax.experimental import pallas as pl

import fuse
from fuse.backends.functions import Shipment
from fuse.device import lazy
from tests.device.helpers import DEVICE


@fuse.kernel(name="fuse_tests::gelu_like")
def gelu_like(x, w, *, scale=1.0):
    return x * jax.nn.sigmoid(scale * x) * w


@fuse.kernel(name="fuse_tests::pair")
def pair(x) -> tuple[jax.Array, jax.Array]:
    return x * 2, x.sum()


@fuse.kernel(donate=("x",), name="fuse_tests::grow_")
def grow_(x, w):
    return x * w


@fuse.kernel(name="fuse_tests::blocks")
def blocks(x):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0] // 8,),
        in_specs=[spec],
        out_specs=spec,
    )(x)


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    doubled, total = pair(gelu_like(x, w, scale=2.0))
    return doubled + total


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_graph_holds_them_forward_and_backward(dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="tpu", fullgraph=True, dynamic=dynamic)
    x, w = torch.randn(4, 8), torch.randn(8)
    for _ in range(6):
        given = [tensor.to(DEVICE).requires_grad_() for tensor in (x, w)]
        found = compiled(*given)
        found.sum().backward()
    plain = [tensor.clone().requires_grad_() for tensor in (x, w)]
    wanted = program(*plain)
    wanted.sum().backward()
    torch.testing.assert_close(found.detach().cpu(), wanted.detach())
    for one, other in zip(given, plain, strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad)


def test_a_compiled_graph_overwrites_and_breaks_as_it_must():
    torch._dynamo.reset()

    def overwriting(x, w):
        y = x * 2
        return grow_(y, w) + y

    def breaking(x):
        return fuse.jax_call(lambda tree: {"b": jnp.sin(tree["a"])}, {"a": x * 2})["b"] * 3

    x, w = torch.randn(4, 8), torch.randn(8)
    over = torch.compile(overwriting, backend="tpu", fullgraph=True)
    broken = torch.compile(breaking, backend="tpu")
    for _ in range(4):
        torch.testing.assert_close(over(x.to(DEVICE), w.to(DEVICE)).cpu(), 4 * x * w)
        torch.testing.assert_close(broken(x.to(DEVICE)).cpu(), torch.sin(x * 2) * 3)


UNPACK = """
import pickle, sys
from fuse.backends.functions import program_of
from fuse.backends.xla.platform import Platform
from fuse.trace.bind import bind
import jax
nodes, shipment = pickle.loads(sys.stdin.buffer.read())
shipment.unpack()
(node,) = nodes
assert bind(node)[0]
program = program_of(node.target)
from jax import export
specs = [jax.ShapeDtypeStruct((16, 128), "float32")]
jitted = jax.jit(lambda *arrays: program.emit(Platform("tpu"), arrays))
again = export.export(jitted, platforms=["tpu"])(*specs)
print(again.mlir_module().count("tpu_custom_call"), again.out_avals[0].shape)
"""


def test_a_pallas_kernel_is_compiled_for_a_tpu_and_goes_to_its_compilers_process():
    """By Mosaic, which is in JAX: no TPU and no libtpu is needed to come so far."""
    nodes: list[Any] = []
    before = lazy.engine().inspector
    lazy.engine().inspector = lambda runnable, *_: nodes.extend(runnable.plan.trace.nodes)
    try:
        blocks(torch.ones(16, 128, device=DEVICE)).cpu()
    finally:
        lazy.engine().inspector = before
    called = tuple(node for node in nodes if node.op == "fuse_tests::blocks")
    data = pickle.dumps((called, Shipment.of(called, "tpu")))
    found = subprocess.run(
        [sys.executable, "-c", UNPACK], input=data, capture_output=True, timeout=240, check=False
    )
    assert found.stdout.decode().strip() == "1 (16, 128)", found.stderr.decode()
