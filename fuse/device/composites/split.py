"""Splitting where the places to split at are data: one host read, then views."""

from __future__ import annotations

import torch
from torch import Tensor

from fuse.device.composites.registry import cpp_name, implicit


@implicit("tensor_split.tensor_indices_or_sections")
def _tensor_split(
    self: Tensor, tensor_indices_or_sections: Tensor, dim: int = 0
) -> tuple[Tensor, ...]:
    places = tensor_indices_or_sections
    if places.dtype != torch.int64:
        raise RuntimeError(
            f"tensor_split expected tensor_indices_or_sections to have dtype of long, "
            f"but got {cpp_name(places.dtype)}"
        )
    if places.dim() > 1:
        raise RuntimeError(
            "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
            f"one-dimensional tensor, but got a tensor with {places.dim()} dims"
        )
    return torch.tensor_split(self, places.tolist(), dim)
