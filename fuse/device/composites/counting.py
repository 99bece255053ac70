"""Counting: how often, how many, and where."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fuse.device.composites.registry import cpp_name, implicit, whole
from fuse.device.composites.segment import segment_of_each
from fuse.device.started import device

_COUNTED = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@whole("bincount")
def _bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if self.dtype not in _COUNTED:
        raise NotImplementedError(f"\"bincount_cpu\" not implemented for '{cpp_name(self.dtype)}'")
    if self.dim() == 1 and self.numel() == 0:
        return torch.zeros(minlength, dtype=torch.int64, device=self.device)
    if self.dim() != 1:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights.shape != self.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    dtype = torch.int64
    if weights is not None:
        dtype = torch.float32 if weights.dtype == torch.float32 else torch.float64
    where = self.to(torch.int64)
    low, high = torch.stack([where.amin(), where.amax()]).tolist()
    if low < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    source = torch.ones_like(where) if weights is None else weights.to(dtype)
    result = torch.zeros(max(high + 1, minlength), dtype=dtype, device=self.device)
    return result.scatter_add(0, where, source)


@whole("repeat_interleave.Tensor")
def _repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    if repeats.dim() != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if repeats.dtype not in (torch.int32, torch.int64):
        raise RuntimeError("repeats has to be Long or Int tensor")
    if repeats.numel() == 0:
        return repeats.clone()
    ends = repeats.cumsum(0)
    total, low = torch.stack([ends[-1], repeats.to(torch.int64).amin()]).tolist()
    if low < 0:
        raise RuntimeError("repeats can not be negative")
    if output_size is not None and output_size != total:
        raise RuntimeError("allocated size does not match required size")
    return segment_of_each(ends, total)[0].to(repeats.dtype)


@whole("nonzero_static")
def _nonzero_static(self: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    flat = self.ne(0).reshape(-1)
    rank = flat.cumsum(0) - 1
    target = torch.where(flat & (rank < size), rank, size)
    absent = torch.full((size + 1,), -1, dtype=torch.int64, device=self.device)
    where = absent.scatter(0, target, torch.arange(flat.numel(), device=self.device))[:size]
    columns = []
    stride = self.numel()
    for length in self.shape:
        stride = stride // length if length else 0
        column = where.div(max(stride, 1), rounding_mode="floor").remainder(max(length, 1))
        columns.append(torch.where(where < 0, fill_value, column))
    if not columns:
        return torch.empty((size, 0), dtype=torch.int64, device=self.device)
    return torch.stack(columns, 1)


@implicit("one_hot")
def _one_hot(self: Tensor, num_classes: int = -1) -> Tensor:
    if self.dtype != torch.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if self.numel() == 0 and num_classes <= 0:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if num_classes == -1:
        low, high = torch.stack([self.amin(), self.amax()]).tolist()
        if low < 0:
            raise RuntimeError("Class values must be non-negative.")
        num_classes = high + 1
    elif self.numel() and (num_classes < 1 or device().engine.mode == "debug"):
        functional.one_hot(self.cpu(), num_classes)
    classes = torch.arange(num_classes, device=self.device)
    classes.index_select(0, self.reshape(-1))  # its check remains: a class is in range
    return self.contiguous().unsqueeze(-1).eq(classes).to(torch.int64)
