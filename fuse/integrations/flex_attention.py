"""FlexAttention on the device: PyTorch has a list of devices that may call it.

What it computes is PyTorch's own definition of it, as one program: scores, the modification, the
mask, softmax and the weighted sum, and their gradients.
"""

from __future__ import annotations

import functools
from types import ModuleType

import torch


def extend(module: ModuleType) -> None:
    """Have ``torch.nn.attention.flex_attention`` take tensors of the device. Idempotent."""
    own = module._validate_device
    if hasattr(own, "of_fuse"):
        return

    @functools.wraps(own)
    def validate(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != "tpu":
            own(query, key, value)

    validate.of_fuse = True  # type: ignore[attr-defined]
    module._validate_device = validate  # type: ignore[attr-defined]
