"""accelerate's ``get_max_memory``: where ``device_map="auto"`` may put a model's layers.

accelerate asks the accelerators that it knows by name, finds none, and without a word puts the
whole model on the CPU; transformers and diffusers ask accelerate. Whoever says ``"auto"`` wants
what ``Accelerator()`` takes, so this device is offered where no other is.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch

from fuse.device import lazy
from fuse.device.memory import mem_get_info

Memory = dict[int | str, int]


def extend(module: Any) -> None:
    """Make ``accelerate.utils.modeling`` offer the device's memory; it starts when it is asked.

    Args:
        module: ``accelerate.utils.modeling``.
    """
    original = module.get_max_memory
    module.get_max_memory = _get_max_memory(original, module.convert_file_size_to_int)
    package = sys.modules.get("accelerate.utils")
    if getattr(package, "get_max_memory", None) is original:
        package.get_max_memory = module.get_max_memory  # type: ignore[union-attr]


def _get_max_memory(original: Any, to_bytes: Any) -> Any:
    @functools.wraps(original)
    def get_max_memory(max_memory: Any = None) -> Any:
        alone = original()
        if set(alone) != {"cpu"}:
            return original(max_memory)
        if max_memory is None:
            return _with_devices(alone["cpu"])
        for name, size in max_memory.items():
            if isinstance(size, str):
                max_memory[name] = to_bytes(
                    size
                )  # in place, as accelerate does: transformers reads it
        # What the program names is all that it wants to be used. accelerate counts no device, and
        # would warn of each that is named.
        ours: Memory = {index: max_memory[index] for index in _devices() if index in max_memory}
        return ours | original({name: max_memory[name] for name in set(max_memory) - set(ours)})

    return get_max_memory


def _devices() -> range:
    return range(torch.accelerator.device_count())


def _with_devices(host: int) -> Memory:
    """Free bytes by device index, in order, and of the host where its memory is another."""
    free: Memory = {index: mem_get_info(index)[0] for index in _devices()}
    if lazy.engine().backend.shares_host_memory():
        # One memory, offered once: what lies there is computed with wherever it is put.
        return {index: size // len(free) for index, size in free.items()}
    return {**free, "cpu": host}
