"""What ``torch.nn.DataParallel`` calls, which PyTorch's own module has for CUDA alone.

As torch/csrc/cuda/comm.cpp has them. A PyTorch that is built for CUDA keeps its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_HOST = -1  # PyTorch's number of the CPU among devices


def _at(index: int | None) -> torch.device:
    if index is None:
        index = torch.accelerator.current_device_index()
    return torch.device("cpu") if index == _HOST else torch.device("tpu", index)


def _broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """The tensor on each device; itself where it is there."""
    return [tensor.to(_at(index), non_blocking=True) for index in devices]


def _broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[Tensor]]:
    """For each device all tensors on it. Nothing is coalesced: copies are recorded."""
    return [[tensor.to(_at(index), non_blocking=True) for tensor in tensors] for index in devices]


def _scatter(
    tensor: Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[torch.Stream | None] | None,
) -> list[Tensor]:
    """A part on each device, as equal as ``torch.chunk`` makes them, or of these sizes.

    ``streams`` are not used: what one makes and another reads is ordered by itself.
    """
    if chunk_sizes is None:
        parts = tensor.chunk(len(devices), dim)
    else:
        parts = tensor.split(list(chunk_sizes), dim)
    return [
        part.to(_at(index), non_blocking=True) for part, index in zip(parts, devices, strict=False)
    ]


def _gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
    """All of them joined on one device, or on the CPU."""
    place = _at(destination)
    return torch.cat([tensor.to(place, non_blocking=True) for tensor in tensors], dim)


_FUNCTIONS = {
    "_broadcast": _broadcast,
    "_broadcast_coalesced": _broadcast_coalesced,
    "_scatter": _scatter,
    "_gather": _gather,
}


def register() -> None:
    """Give PyTorch's C module what a build without CUDA lacks."""
    for name, function in _FUNCTIONS.items():
        if not hasattr(torch._C, name):
            setattr(torch._C, name, function)
