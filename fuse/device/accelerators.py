"""Which other accelerator PyTorch can use here, found without starting it: forks go on working.

PyTorch's own ``is_available`` of CUDA starts its driver, after which a process must not fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch

NODES = Path("/dev")
"""Where drivers show their devices."""
_INTEL = "0x8086"


def usable() -> str | None:
    """The name of an accelerator that this PyTorch is built for and that is here, or None.

    In doubt it is here. Takes microseconds where PyTorch is built for none or no driver shows a
    device, else as long as NVML takes to start.
    """
    return next((name for name, is_usable in _USABLE.items() if is_usable()), None)


def _cuda() -> bool:
    """CUDA's and ROCm's devices, which are "cuda" alike."""
    if not torch._C._has_cuda:
        return False
    if torch.version.hip is not None:
        return _shown("kfd") and torch.cuda._device_count_amdsmi() != 0
    # dxg: of Windows' Linux; nvhost and nvgpu: of boards without NVML.
    if not _shown("nvidia[0-9]*", "nvidiactl", "dxg", "nvhost-gpu", "nvgpu"):
        return False
    # Minds CUDA_VISIBLE_DEVICES. Below zero: NVML is not there, or the devices are parts of one.
    return torch.cuda._device_count_nvml() != 0


def _xpu() -> bool:
    if not torch._C._has_xpu or os.environ.get("ZE_AFFINITY_MASK") == "":
        return False
    vendors = Path("/sys/class/drm").glob("renderD*/device/vendor")
    return _shown("dri/renderD*") and any(one.read_text().strip() == _INTEL for one in vendors)


def _mps() -> bool:
    return torch._C._has_mps  # built for Apple's machines, each of which has one


_USABLE: dict[str, Callable[[], bool]] = {"cuda": _cuda, "xpu": _xpu, "mps": _mps}


def _shown(*patterns: str) -> bool:
    return any(next(NODES.glob(pattern), None) is not None for pattern in patterns)
