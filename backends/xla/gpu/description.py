"""A GPU's description in the form that XLA's compiler takes for one that is not there.

The form is the text of ``stream_executor.GpuTargetConfigProto``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fuse.backends.xla.gpu.devices import Model

_ALIKE: Final = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "threads_per_core_limit": 2048,
    "block_dim_limit_x": (1 << 31) - 1,
    "block_dim_limit_y": (1 << 16) - 1,
    "block_dim_limit_z": (1 << 16) - 1,
    "thread_dim_limit_x": 1024,
    "thread_dim_limit_y": 1024,
    "thread_dim_limit_z": 64,
    "registers_per_core_limit": 1 << 16,
    "registers_per_block_limit": 1 << 16,
    "shared_memory_per_block": 48 << 10,
    "device_address_bits": 64,
    "ecc_enabled": True,
    "device_vendor": "NVIDIA Corporation",
}
"""What the table of ``devices.Core`` gives for every capability here."""


class Word(str):
    """A name of an enumeration, which is written without quotes."""

    __slots__ = ()


def described(model: Model, cuda: str, cudnn: str) -> str:
    """The text for a GPU, and the versions of CUDA and of cuDNN, each as ``13.0.0``."""
    major, minor, patch = (int(part) for part in cudnn.split("."))
    core, machine = model.core, model.machine
    capability = {
        "major": core.capability[0],
        "minor": core.capability[1],
        "feature_extension": Word("ACCELERATED_FEATURES" if core.accelerated else "NONE"),
    }
    number = f"{core.capability[0]}.{core.capability[1]}{'a' * core.accelerated}"
    device = _ALIKE | {
        "core_count": model.cores,
        "fpus_per_core": core.units,
        "shared_memory_per_core": core.shared,
        "shared_memory_per_block_optin": core.shared_by_block,
        "memory_bandwidth": int(machine.bandwidth),
        "device_memory_size": machine.memory,
        "l2_cache_size": model.cache,
        "clock_rate_ghz": model.clock / 1e9,
        "cuda_compute_capability": capability,
        "platform_version": f"Compute Capability {number}",
        "name": model.full_name,
        "driver_version": cuda,
        "runtime_version": cuda,
        "compile_time_toolkit_version": cuda,
        "dnn_version": cudnn,
    }
    whole = {
        "gpu_device_info": device,
        "platform_name": "CUDA",
        "dnn_version_info": {"major": major, "minor": minor, "patch": patch},
        "device_description_str": model.full_name,
    }
    return "\n".join(_lines(whole, "")) + "\n"


def _lines(message: Mapping[str, Any], indent: str) -> list[str]:
    """A message of protocol buffers as text."""
    found = []
    for name, value in message.items():
        if isinstance(value, Mapping):
            found += [f"{indent}{name} {{", *_lines(value, indent + "  "), f"{indent}}}"]
        else:
            found.append(f"{indent}{name}: {_scalar(value)}")
    return found


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and not isinstance(value, Word):
        return f'"{value}"'
    return str(value)
