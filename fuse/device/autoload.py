"""The entry point that ``import torch`` calls, and ``import fuse``: whether to be there at all.

A registered device is the one accelerator that PyTorch has in a process, used or not. So where
another one is usable, or the name is another package's, ``import torch`` leaves nothing behind.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings

import torch

import fuse
from fuse import config
from fuse.device import accelerators

_PLACE = "privateuseone"  # what PyTorch calls its device for others until one takes it
BESIDE = (
    "the tpu device is registered in a process that can use {0}, and PyTorch has one accelerator a "
    "process: from here on that is tpu. Until the program ends, loss.backward() of {0} tensors "
    "fails, torch.accelerator and Tensor.pin_memory() are tpu's. Programs for {0} run as ever "
    "where neither fuse is imported nor FUSE_AUTOLOAD=1 set"
)


class BesideWarning(UserWarning):
    """The device was asked for where PyTorch can use another accelerator."""


def autoload() -> None:
    """Register the device, unless something is against it; idempotent.

    Where the program has asked for it, by ``import fuse`` or ``FUSE_AUTOLOAD=1``, another
    accelerator is no reason against it: it warns with ``BesideWarning``, once. What still is, a
    start of the device says.
    """
    ours = sys.modules.get("fuse.device.module")
    if ours is not None and getattr(torch, "tpu", None) is ours:
        return
    obstacle = _obstacle()
    asked = fuse.by_program or config.autoload() == "1"
    beside = accelerators.usable() if obstacle is None else None
    if not asked and (obstacle or beside):
        _forget()
        return
    if obstacle is not None:
        importlib.import_module("fuse.device.lazy").step_aside(*obstacle)
        return
    if beside is not None:
        warnings.warn(BESIDE.format(beside), BesideWarning, stacklevel=2)
    # By name, and here: what it imports is no program's that does without the device.
    importlib.import_module("fuse.device.registration").register()


def _obstacle() -> tuple[str, str] | None:
    """Why the device cannot be registered, and a hint."""
    chosen = config.autoload()
    if chosen == "0":
        return "FUSE_AUTOLOAD=0 keeps the device tpu out of this process", "unset FUSE_AUTOLOAD"
    if chosen == "auto" and importlib.util.find_spec("torch_tpu") is not None:
        hint = "set FUSE_AUTOLOAD=1 before the program starts, or uninstall torch_tpu"
        return "the device tpu is torch_tpu's in this process", hint
    name = torch._C._get_privateuse1_backend_name()
    if name != _PLACE:
        hint = "uninstall one of the two packages, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and "
        hint += "import the one that the program needs"
        return f"PyTorch has one device of other packages a process, and that is {name}", hint
    return None


def _forget() -> None:
    """``import fuse`` is to run again when the program says it."""
    for name in list(sys.modules):
        if name == "fuse" or name.startswith("fuse."):
            del sys.modules[name]
