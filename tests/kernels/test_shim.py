"""The shim of what launchers import of TorchTPU: there only while it is asked for."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

import jax
import pytest
import torch
from jax.experimental import pallas as pl

from fuse.errors import KernelError, UnsupportedError
from fuse.torch_tpu import shim
from tests.device.helpers import DEVICE, run

NAMES = "torch_tpu._internal.pallas.pallas"


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    shim.remove()


@pytest.mark.slow
def test_nothing_installs_it_but_the_program():
    code = (
        "import sys, torch, fuse, fuse.torch_tpu.shim as shim, importlib.util as util; "
        "torch.ones(2, device='tpu').sum().item(); torch.tpu.pallas; "
        "print('torch_tpu' in sys.modules, util.find_spec('torch_tpu')); shim.install(); "
        "import torch_tpu._internal.utils.hardware as h; print(h.get_tpu_device_name())"
    )
    assert run(code, fresh=True) == f"False None\n{shim.KIND}\n"


def test_it_is_there_for_a_block():
    with shim.installed("TPU v6 lite"):
        hardware = importlib.import_module("torch_tpu._internal.utils.hardware")
        assert hardware.get_tpu_device_name() == "TPU v6 lite"
        shim.install()  # again: the device's own kind
        assert hardware.get_tpu_device_name() == shim.KIND
    assert not [name for name in sys.modules if name.partition(".")[0] == "torch_tpu"]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(NAMES)


def test_a_package_of_that_name_is_not_replaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch_tpu", ModuleType("torch_tpu"))
    with pytest.raises(UnsupportedError, match="uninstall torch_tpu"):
        shim.install()
    assert sys.modules["torch_tpu"].__doc__ is None


def test_a_callable_is_an_operation_and_overwrites_what_is_aliased():
    def kernel(x_ref, y_ref, o_ref, p_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
        p_ref[...] = x_ref[...] * y_ref[...]

    def call(x, y):
        return pl.pallas_call(kernel, out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype)] * 2)(x, y)

    with shim.installed():
        module = importlib.import_module(NAMES)
        x, y = torch.randn(8, 128), torch.randn(8, 128)
        placeholder = module.jax_placeholder(x)
        assert (placeholder.shape, str(placeholder.dtype)) == ((8, 128), "float32")
        made = module.JaxCallable("sum", jax.jit(call), "sum", input_output_aliases={0: 1})
        on, other, wanted = x.to(DEVICE), y.to(DEVICE), x
        for _ in range(6):
            results = made(on, other)
            torch.testing.assert_close(results[0].cpu(), wanted + y)
            wanted = wanted * y
            torch.testing.assert_close(on.cpu(), wanted)
        with pytest.raises(KernelError, match="float32\\[3\\]"):
            made(torch.ones(3, device=DEVICE), other)


def test_what_is_never_called_says_so():
    with shim.installed():
        module = importlib.import_module("torch_tpu._internal.pallas")
        with pytest.raises(UnsupportedError, match="by its JaxCallable"):
            module.tpu_torch_pallas.call_custom_kernel("name", "digest")
