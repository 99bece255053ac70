"""FlexAttention on the device: PyTorch has a list of devices that may call it.

What it computes is PyTorch's own definition of it, as one program: scores, the modification, the
mask, softmax and the weighted sum, and their gradients; or the device's attention, where scores
are not modified.
"""

from __future__ import annotations

import functools
from types import ModuleType

import torch
from torch._C import DispatchKey
from torch._higher_order_ops.flex_attention import flex_attention, flex_attention_backward

from fuse.compile.flex_definitions import attend, attend_backward


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
    flex_attention.py_impl(DispatchKey.PrivateUse1)(attend)
    flex_attention_backward.py_impl(DispatchKey.PrivateUse1)(attend_backward)
