"""Indices of compressed sparse tensors from those of coordinate ones, and back."""

from __future__ import annotations

import torch
from torch import Tensor

from fuse.device.composites.registry import whole
from fuse.device.composites.segment import segment_of_each


@whole("_convert_indices_from_coo_to_csr")
def _compressed(self: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Where each of ``size`` rows begins: (size + 1,), of ascending row numbers (n,)."""
    rows = torch.arange(size + 1, dtype=self.dtype, device=self.device)
    return torch.searchsorted(self.contiguous(), rows, out_int32=out_int32)


@whole("_convert_indices_from_csr_to_coo")
def _coordinates(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """A column an element: of the batch (...), the row (..., rows + 1), the column (..., n)."""
    *batch, elements = col_indices.shape
    dtype = torch.int32 if out_int32 else torch.int64
    row, _ = segment_of_each(crow_indices[..., 1:], elements)
    row, column = (one.to(dtype).reshape(-1) for one in (row, col_indices))
    leading = [
        torch.arange(size, dtype=dtype, device=row.device)
        .reshape(size, *(1 for _ in col_indices.shape[at + 1 :]))
        .expand(col_indices.shape)
        .reshape(-1)
        for at, size in enumerate(batch)
    ]
    return torch.stack([*leading, column, row] if transpose else [*leading, row, column])
