"""``torch.tpu``: what PyTorch and its users expect of a device module.

Names, arguments and meanings follow ``torch.cuda`` and ``torch.accelerator``.
"""

from __future__ import annotations

import importlib
import pathlib
import sys
from types import ModuleType
from typing import Any

import torch
from torch.storage import _dtype_to_storage_type_map

from fuse.device import lazy, memory as memory, random as random, streams as streams, unused
from fuse.device.current_device import (
    Which,
    current_device as current_device,
    device as device,
    exchange_device,
    set_device as set_device,
)
from fuse.device.memory import (
    empty_cache as empty_cache,
    host_memory_stats as host_memory_stats,
    host_memory_stats_as_nested_dict as host_memory_stats_as_nested_dict,
    max_memory_allocated as max_memory_allocated,
    max_memory_reserved as max_memory_reserved,
    mem_get_info as mem_get_info,
    memory_allocated as memory_allocated,
    memory_reserved as memory_reserved,
    memory_snapshot as memory_snapshot,
    memory_stats as memory_stats,
    memory_stats_as_nested_dict as memory_stats_as_nested_dict,
    memory_summary as memory_summary,
    reset_accumulated_host_memory_stats as reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats as reset_accumulated_memory_stats,
    reset_peak_host_memory_stats as reset_peak_host_memory_stats,
    reset_peak_memory_stats as reset_peak_memory_stats,
)
from fuse.device.random import (
    default_generators as default_generators,
    get_rng_state as get_rng_state,
    get_rng_state_all as get_rng_state_all,
    initial_seed as initial_seed,
    manual_seed as manual_seed,
    manual_seed_all as manual_seed_all,
    seed as seed,
    seed_all as seed_all,
    set_rng_state as set_rng_state,
    set_rng_state_all as set_rng_state_all,
)
from fuse.device.streams import (
    Event as Event,
    Stream as Stream,
    current_stream as current_stream,
    default_stream as default_stream,
    set_stream as set_stream,
    stream as stream,
)

OutOfMemoryError = torch.OutOfMemoryError
"""What the device raises where a value does not fit, under CUDA's other name."""
__path__ = [str(pathlib.Path(__file__).parents[1] / "torch_tpu")]
_SUBMODULES = frozenset({"compiler", "ops", "optimizers", "pallas", "profiler"})


def init() -> None:
    """Start the device now instead of at its first use.

    It builds or loads the native core, and starts the backend. Once started, it does nothing.

    Raises:
        BuildError: the native core can be neither built nor loaded.
        VersionError: PyTorch or JAX is too old.
    """
    lazy.initialise()


def is_initialized() -> bool:
    """Whether the device has been started; starts nothing."""
    return lazy.is_initialised()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one whose device had been started."""
    return lazy.in_bad_fork()


class _TpuModule(ModuleType):
    """``torch.tpu`` with an attribute that can be set: the eager mode, in TorchTPU's names."""

    @property
    def eager_mode(self) -> Any:
        """The current mode, an ``EagerMode``."""
        return self.get_eager_mode()

    @eager_mode.setter
    def eager_mode(self, mode: Any) -> None:
        self.choose_eager_mode(mode)


sys.modules[__name__].__class__ = _TpuModule


def __getattr__(name: str) -> Any:
    """``_initialized``, by which PyTorch asks for random state to keep; and what is loaded late.

    That is the folder ``fuse/torch_tpu``, which stands above this one.
    """
    if name == "_initialized":
        return lazy.is_initialised()
    if name in _SUBMODULES:
        return importlib.import_module(f"torch.tpu.{name}")
    if name in _dtype_to_storage_type_map().values():
        return importlib.import_module("fuse.device.storages").typed(name)
    if name.startswith("_"):  # PyTorch asks for many
        raise AttributeError(f"module 'torch.tpu' has no attribute {name!r}")
    return getattr(importlib.import_module("torch.tpu.names"), name)


def is_available() -> bool:
    """Whether there is a device to use: always, for XLA on the CPU needs nothing else."""
    return True


def device_count() -> int:
    """How many devices JAX finds; starts the device.

    PyTorch's own questions, which come from programs for the CPU too, start nothing: 1 then.
    """
    if not lazy.is_initialised() and unused.asked_by("torch.random", "torch.accelerator"):
        return 1
    lazy.initialise()
    return lazy.engine().backend.device_count()


_lazy_init = lazy.initialise
_exchange_device = _maybe_exchange_device = exchange_device


def get_device_name(which: Which = None) -> str:
    """The platform's own name of a device, for example ``cpu`` or ``NVIDIA H200``; starts it.

    Args:
        which: not read: the devices of a platform are alike.
    """
    lazy.initialise()
    return lazy.engine().backend.device_name()


def get_device_capability(which: Which = None) -> tuple[int, int]:
    """A version pair, for programs that ask; XLA hides the real one.

    Args:
        which: not read.

    Returns:
        ``(1, 0)``.
    """
    return (1, 0)


def synchronize(which: Which = None) -> None:
    """Hand on what is recorded and wait until everything has run. Errors surface here.

    Before the device has been started there is nothing to wait for.

    Args:
        which: not read: all devices are waited for.

    Raises:
        ExecutionError: a chunk failed; the text names its operations and your lines.

    Example:
        ```python
        x = torch.ones(3, device="tpu")
        y = x + 1  # written down
        torch.tpu.synchronize()  # computed
        ```
    """
    if lazy.is_initialised():
        lazy.core().synchronize()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 works: yes.

    Args:
        including_emulation: whether a dtype counts that is computed by another; it changes nothing.
    """
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Dtypes that ``torch.autocast("tpu")`` computes in; float32 within another, as on CUDA."""
    return [torch.bfloat16, torch.float16, torch.float32]


def is_autocast_enabled() -> bool:
    """Whether autocast is on for this device."""
    return torch.is_autocast_enabled("tpu")
