"""vLLM on the device: its platform, worker and attention, of which vLLM loads what it needs.

``register`` is the entry point of the group ``vllm.platform_plugins``. Only vLLM imports the other
files of this folder, but ``buckets``, ``batch`` and ``paged_attention``, which know nothing of it.
"""

from __future__ import annotations

import sys

import torch

PLATFORM = "fuse.integrations.vllm.platform.TpuPlatform"


def register() -> str | None:
    """The platform's class, for vLLM to import; ``None`` where the device is not registered.

    Where it is, vLLM takes it before its own platforms; ``VLLM_TARGET_DEVICE=cpu`` stays on the
    CPU.
    """
    ours = sys.modules.get("fuse.device.module")
    return PLATFORM if ours is not None and getattr(torch, "tpu", None) is ours else None
