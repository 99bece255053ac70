"""TorchTitan's trainer on the CPU, which it does not know: what results are compared with.

    TORCH_DEVICE_BACKEND_AUTOLOAD=0 TORCHDYNAMO_DISABLE=1 python -m tests.clients.titan_on_cpu ...

PyTorch refuses FlexAttention's gradient on the CPU, and Inductor does not compile it there.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.attention.flex_attention as flex


def _nothing(*_: object) -> None:
    """What there is to do to a CPU's memory and its current device."""


def know_the_cpu() -> None:
    """Give ``torch.cpu`` what TorchTitan asks of an accelerator's module."""
    settings: Any = torch._utils
    settings._get_available_device_type = lambda: "cpu"
    cpu: Any = torch.cpu
    cpu.current_device = lambda: 0
    cpu.get_device_name = lambda *_: "cpu"
    cpu.get_device_properties = lambda *_: SimpleNamespace(total_memory=1 << 34, name="cpu")
    cpu.memory_stats = lambda *_: {}
    for name in ("empty_cache", "reset_accumulated_memory_stats", "reset_peak_memory_stats"):
        setattr(cpu, name, _nothing)
    cpu.set_device = _nothing
    attention: Any = flex
    attention._validate_device = _nothing


if __name__ == "__main__":
    know_the_cpu()
    # Lazily: it asks for the device when it is imported.
    from torchtitan.train import main  # noqa: PLC0415

    main()
