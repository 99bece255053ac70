"""Numbers that vary, as a TPU's programs take them: converted together, not one by one."""

from __future__ import annotations

import struct
from dataclasses import replace

import jax
import numpy as np
import pytest

from fuse.backends.base import Chunk
from fuse.backends.decomposed import Decompositions
from fuse.backends.xla.lowering import lowered
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules.registry import RULES
from fuse.backends.xla.tpu.platform import TpuPlatform
from fuse.trace.node import HostArg, Leaf, NumberArg, TensorArg
from tests.trace.drawing import Drawing

X = np.array([1.0, -2.5, 3e30, 0.0], np.float32)


def scaled(dtype: str, host: bool, platform: Platform, number: float) -> tuple[np.ndarray, str]:
    """``x`` times a number that varies, and the program's text."""
    (node,) = Drawing("y = mul(x, n)").nodes
    x, output = node.operands[0], node.outputs[0]
    view, layout = replace(x.view, dtype=dtype), replace(x.layout, dtype=dtype)
    varying = HostArg("float64", 0.5, True, 1) if host else NumberArg(0.5, 1)
    name = "mul.Tensor" if host else "mul.Scalar"
    node = replace(
        node,
        op=name,
        target=name,
        args=(TensorArg(0), varying),
        operands=(replace(x, view=view, layout=layout),),
        outputs=(replace(output, view=view, layout=layout),),
        dynamic=((1, 0),),
    )
    chunk = Chunk((node,), (Leaf(x.value, layout),), (output.value,), (), 1)
    program, _ = lowered(chunk, platform, Decompositions(lambda name: name in RULES))
    words = np.frombuffer(struct.pack("<d", number), np.uint32).reshape(1, 2)
    with jax.enable_x64(True):
        (result,) = program.compile()(words, X.astype(dtype))
    return np.asarray(result), program.as_text()


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("number", [0.1, -1e-3, 1e-40, 1e300, float("nan")])
def test_a_number_is_the_same_one_on_a_tpu(dtype: str, host: bool, number: float) -> None:
    there, _ = scaled(dtype, host, TpuPlatform(), number)
    here, _ = scaled(dtype, host, Platform("cpu"), number)
    assert there.dtype == here.dtype and np.array_equal(there, here, equal_nan=True)


def test_it_is_float32_where_nothing_else_is_more() -> None:
    texts = {dtype: scaled(dtype, False, TpuPlatform(), 0.1)[1] for dtype in ("float32", "float64")}
    assert "tensor<1xf64>) -> tensor<1xf32>" in texts["float32"]
    assert "tensor<f64>) -> tensor<f32>" not in texts["float32"]
    assert "tensor<f32>" not in texts["float64"]
