"""The names of ``torch.tpu`` itself beyond those of every device module."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

from fuse import modes
from fuse.device import backend_settings, lazy, module
from fuse.device.current_device import index_of
from fuse.errors import UnsupportedError, describe


class EagerMode(enum.Enum):
    """TorchTPU's names of the three eager modes; the values are ours."""

    DEFER_AND_FUSE = "fused"
    DEFER_NEVER = "strict"
    DEFER_NEVER_AND_LAUNCH_BLOCKING = "debug"


class Precision(enum.Enum):
    """How precise products of float32 are; the values are PyTorch's names."""

    DEFAULT = "bf16"
    HIGH = "tf32"
    HIGHEST = "ieee"


def get_eager_mode() -> EagerMode:
    """The current mode; also as the attribute ``torch.tpu.eager_mode``, which can be set."""
    return EagerMode(modes.get_mode())


def choose_eager_mode(mode: EagerMode) -> None:
    """Change the mode from here on: ``torch.tpu.eager_mode = mode``.

    Args:
        mode: for the whole process.

    Raises:
        ValueError: it is no ``EagerMode``.
    """
    modes.set_mode(EagerMode(mode).value)


@contextlib.contextmanager
def set_eager_mode(mode: EagerMode) -> Iterator[None]:
    """Context manager: run the block in a mode, and in the one of before afterwards.

    Args:
        mode: for the whole process.

    Raises:
        ValueError: on entering, where it is no ``EagerMode``.
    """
    before = modes.get_mode()
    modes.set_mode(EagerMode(mode).value)
    try:
        yield
    finally:
        modes.set_mode(before)


@contextlib.contextmanager
def precision(mode: Precision) -> Iterator[None]:
    """Context manager: how precise products of float32 are in the block, where there is a choice.

    It is ``torch.backends.tpu.flags`` in TorchTPU's words.

    Args:
        mode: ``DEFAULT`` is one pass of bfloat16 on a TPU; ``HIGHEST`` is float32.

    Raises:
        ValueError: on entering, where it is no ``Precision``.
    """
    with backend_settings.flags(Precision(mode).value):
        yield


class device_of(module.device):  # noqa: N801  (the name PyTorch looks for)
    """Context manager: the device of a tensor for the block; nothing for one of elsewhere."""

    def __init__(self, tensor: torch.Tensor) -> None:
        """What the block's device is.

        Args:
            tensor: on any device.
        """
        super().__init__(tensor.device.index if tensor.device.type == "tpu" else -1)


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What ``get_device_properties`` tells.

    Attributes:
        name: the platform's own name of the device.
        total_memory: bytes that one device may use; the host's memory on the CPU platform.
        multi_processor_count: 1; XLA hides the real number.
    """

    name: str
    total_memory: int
    multi_processor_count: int = 1


def get_device_properties(which: Any = None) -> DeviceProperties:
    """Name and memory of a device; starts it.

    Args:
        which: index, string or ``torch.device``; ``None`` is the current one.
    """
    lazy.initialise()
    index = lazy.core().existing_device(index_of(which))
    memory = lazy.engine().backend.memory_bytes(index)
    return DeviceProperties(module.get_device_name(index), memory)


_ELSEWHERE: Final = {
    "allow_excess_precision": (
        "results are rounded to their dtype wherever PyTorch's CPU rounds them",
        "torch.tpu.compiler.custom_compiler_options sets XLA's options",
    ),
}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        reason, hint = _ELSEWHERE[name]
        raise UnsupportedError(describe(f"torch.tpu.{name}: {reason}", hint=hint))
    raise AttributeError(f"module 'torch.tpu' has no attribute {name!r}")
