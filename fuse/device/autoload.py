"""The entry point that ``import torch`` calls: it renames the device and registers ``torch.tpu``.

Everything heavy (the native core, JAX) waits for the first use of the device, which
PyTorch announces by calling ``torch.tpu._lazy_init``.
"""

from __future__ import annotations

import importlib
import importlib.util

import torch

from fuse import config
from fuse.device import inductor, lazy, module, unused


def autoload() -> None:
    """Make ``torch.device("tpu")``, ``torch.tpu`` and ``Tensor.tpu()`` known. Idempotent.

    Where torch_tpu is installed, whose device has the same name, nothing is done: it was there
    for it, and ``FUSE_DEVICE=fuse`` says otherwise.
    """
    if getattr(torch, "tpu", None) is module:
        return
    if importlib.util.find_spec("torch_tpu") is not None and config.device() == "auto":
        lazy.step_aside()
        return
    torch.utils.rename_privateuse1_backend("tpu")
    torch._register_device_module("tpu", module)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    unused.stand_in()
    inductor.stand_before()
    # By name: they stand above this folder.
    importlib.import_module("fuse.distributed.registration").register()
    importlib.import_module("fuse.integrations.registration").register()
