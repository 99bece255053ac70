"""The gradient of an embedding bag's table: dense rows, or a coordinate tensor."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from fuse.device.composites.registry import kernel
from fuse.device.composites.segment import segment_of_each

aten: Final = torch.ops.aten


@kernel("_embedding_bag_backward")
def _backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """As PyTorch composes it for other devices than the CPU; sums leave ``offset2bag`` empty."""
    dtype = torch.result_type(indices, offsets)  # as the forward pass has them
    indices, offsets = indices.to(dtype), offsets.to(dtype)
    if not offset2bag.numel():
        offset2bag, _ = segment_of_each(offsets[1:], indices.numel())
    bags = offset2bag.to(dtype)
    rest = (num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx)
    if sparse:
        call, given = aten._embedding_bag_sparse_backward, (grad, indices, offsets, bags, bag_size)
    else:
        call = aten._embedding_bag_dense_backward
        given = (grad, indices, bags, bag_size, maximum_indices)
    rows: Tensor = call(*given, *rest)
    return rows
