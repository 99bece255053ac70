"""The entry point that ``import torch`` calls: it renames the device and registers ``torch.tpu``.

Everything heavy (the native core, JAX) waits for the first use of the device, which
PyTorch announces by calling ``torch.tpu._lazy_init``.
"""

from __future__ import annotations

from typing import Any

import torch

from fuse.device import module


class _Placeholder(torch._C._acc.DeviceGuard):
    """Stands in for the native device guard until the core is loaded.

    PyTorch's autograd engine counts devices once, at the first backward pass of the process,
    which may be one on the CPU long before the device is used. This guard makes it count us.
    """

    def type_(self) -> Any:
        return torch._C._autograd.DeviceType.PrivateUse1


_placeholder = _Placeholder()


def autoload() -> None:
    """Make ``torch.device("tpu")``, ``torch.tpu`` and ``Tensor.tpu()`` known. Idempotent."""
    if getattr(torch, "tpu", None) is module:
        return
    torch.utils.rename_privateuse1_backend("tpu")
    torch._register_device_module("tpu", module)
    torch._C._acc.register_python_privateuseone_device_guard(_placeholder)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
