"""What of a kernel lasts from process to process: an executable, until the kernel is edited."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.helpers import finish, start

PROGRAM = """
import sys, torch, fuse, jax, jax.numpy as jnp
from jax.experimental import pallas as pl
torch.manual_seed(0)
FACTOR = {factor}
@fuse.kernel(name="fuse_tests::edited")
def edited(x, w):
    def body(x_ref, w_ref, o_ref):
        o_ref[...] = x_ref[...] * FACTOR + w_ref[...]
    block = pl.BlockSpec((2, 4), lambda i: ({rows}, 0))
    return pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(2,),
        in_specs=[block, pl.BlockSpec((2, 4), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((2, 4), lambda i: (i, 0)),
    )(x, w)
x, w = torch.arange(16.0).reshape(4, 4).to("tpu"), torch.ones(4, 4, device="tpu")
for _ in range(6):
    found = edited(x * 1, w).cpu()
from fuse.device import lazy
assert lazy.engine().executables.cache.flush(60)
print(found[2].tolist(), fuse.stats()["compiles"] > 0)
"""


def run(folder: Path, factor: float, rows: str) -> str:
    code = PROGRAM.format(factor=factor, rows=rows)
    process = start(code, fresh=True, FUSE_CACHE_DIR=str(folder))
    out, errors = finish(process)
    assert process.returncode == 0, errors
    return out.strip()


@pytest.mark.slow
def test_an_edited_kernel_meets_no_old_executable(tmp_path):
    assert run(tmp_path, 2.0, "i") == "[17.0, 19.0, 21.0, 23.0] True"
    assert run(tmp_path, 2.0, "i") == "[17.0, 19.0, 21.0, 23.0] False"
    # A constant, then what JAX does not print: how the grid maps to blocks.
    assert run(tmp_path, 3.0, "i") == "[25.0, 28.0, 31.0, 34.0] True"
    assert run(tmp_path, 3.0, "1 - i") == "[1.0, 4.0, 7.0, 10.0] True"
    assert run(tmp_path, 3.0, "1 - i") == "[1.0, 4.0, 7.0, 10.0] False"


CALLING = """
import torch, fuse, jax
@fuse.kernel(name="fuse_tests::calling")
def calling(x):
    return jax.pure_callback(lambda x: x + 1, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
x = torch.ones(3, device="tpu")
print(calling(x * 1).tolist(), fuse.stats()["compiles"])
"""


def test_a_kernel_that_calls_back_is_compiled_in_every_process(tmp_path):
    for _ in range(2):
        process = start(CALLING, FUSE_CACHE_DIR=str(tmp_path))
        out, errors = finish(process)
        assert process.returncode == 0, errors
        assert out.strip() == "[2.0, 2.0, 2.0] 1"


LIGHT = """
import sys, torch, fuse
assert "jax" not in sys.modules and "fuse.kernels" not in sys.modules
fuse.kernel
assert "fuse.device._core" not in sys.modules and "fuse.engine.engine" not in sys.modules
assert "torch._dynamo" not in sys.modules and "jax.experimental.pallas" not in sys.modules
twice = fuse.kernel(lambda x: x * 2, name="fuse_tests::twice")
print(twice(torch.ones(2)).tolist(), torch.tpu.is_initialized())
"""


def test_kernels_load_no_more_than_they_need(tmp_path):
    process = start(LIGHT, fresh=True)
    out, errors = finish(process)
    assert out.strip() == "[2.0, 2.0] False", errors
