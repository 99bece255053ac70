"""Copies of memory seen through strides: of the storage itself, not of the tensor given."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fuse.device.composites.registry import kernel


@kernel("as_strided_copy")
def _as_strided_copy(
    self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    return self.as_strided(size, stride, storage_offset).clone(
        memory_format=torch.contiguous_format
    )


@kernel("as_strided_scatter")
def _as_strided_scatter(
    self: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    elements = self.untyped_storage().nbytes() // self.element_size()
    memory = self.as_strided((elements,), (1,), 0).clone()
    result = memory.as_strided(self.size(), self.stride(), self.storage_offset())
    region = result.as_strided(size, stride, storage_offset)
    if src.shape != region.shape:
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. "
            f"src size = {list(src.shape)}, slice size = {list(region.shape)}"
        )
    region.copy_(src)
    return result
