"""What TorchScript calls of a convolution: PyTorch's own leads to a kernel that no device has."""

from __future__ import annotations

import torch
from torch import Tensor

from fuse.device.composites.registry import kernel


@kernel("_convolution")
def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    *_cudnn: bool,
) -> Tensor:
    """The same as ``convolution``; what says how CUDA may compute it is of no effect."""
    window = (stride, padding, dilation, transposed, output_padding, groups)
    found: Tensor = torch.ops.aten.convolution.default(input, weight, bias, *window)
    return found
