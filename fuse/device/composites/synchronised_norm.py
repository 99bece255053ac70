"""What ``torch.nn.SyncBatchNorm`` calls: a batch norm in parts, between which ranks talk.

PyTorch has these as CUDA kernels alone. Statistics are float32 for inputs of half precision.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fuse.device.composites.registry import kernel


def _precise(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float64 if tensor.dtype == torch.float64 else torch.float32)


def _others(tensor: Tensor) -> list[int]:
    """All dimensions but the channels'."""
    return [dim for dim in range(tensor.dim()) if dim != 1]


def _along(channels: Tensor, tensor: Tensor) -> Tensor:
    """One number a channel, shaped to go with ``tensor``."""
    return channels.reshape([-1 if dim == 1 else 1 for dim in range(tensor.dim())])


@kernel("batch_norm_stats")
def _stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    values = _precise(input)
    variance, mean = torch.var_mean(values, _others(values), correction=0)
    return mean, torch.rsqrt(variance + eps)


@kernel("batch_norm_gather_stats_with_counts")
def _gather_stats(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    counts = counts.to(mean.dtype)
    total = counts.sum()
    shares = (counts / total)[:, None]
    whole = (mean * shares).sum(0)
    variances = invstd.pow(-2) - eps
    variance = ((variances + (mean - whole).square()) * shares).sum(0)
    if running_mean is not None:
        running_mean.lerp_(whole.to(running_mean.dtype), momentum)
    if running_var is not None:
        unbiased = variance * (total / (total - 1))
        running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    return whole, torch.rsqrt(variance + eps)


@kernel("batch_norm_elemt")
def _normalised(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    eps: float,
) -> Tensor:
    found = (input - _along(mean, input)) * _along(invstd, input)
    if weight is not None:
        found = found * _along(weight, input)
    if bias is not None:
        found = found + _along(bias, input)
    return found.to(input.dtype)


@kernel("batch_norm_backward_reduce")
def _backward_sums(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad, others = _precise(grad_out), _others(input)
    sums = grad.sum(others)
    products = (grad * (input - _along(mean, input))).sum(others)
    dtype = mean.dtype if weight is None else weight.dtype
    return sums, products, (products * invstd).to(dtype), sums.to(dtype)


@kernel("batch_norm_backward_elemt")
def _input_gradient(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    total = count.sum().to(mean.dtype)
    slope = _along(invstd.square() * sum_dy_xmu / total, input)
    centred = grad_out - _along(sum_dy / total, input) - (input - _along(mean, input)) * slope
    scale = invstd if weight is None else invstd * weight
    return (centred * _along(scale, input)).to(input.dtype)
