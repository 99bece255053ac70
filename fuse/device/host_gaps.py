"""CPU kernels of single operators that PyTorch has for other devices alone.

The device runs them, so a call that runs on the host, because the shapes at its place keep
changing, needs them: the gradient of `rms_norm`, which the CPU composes of others, and products
of 16-bit matrices with a result of 32 bits. Calls of these with CPU tensors work from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fuse.device.host_attention import wide


def rms_norm_backward(
    grad_out: torch.Tensor,
    x: torch.Tensor,
    normalized_shape: list[int],
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    output_mask: list[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Gradients, where asked for, of ``x`` and of ``weight[normalized_shape]``.

    ``rstd`` is one over the root of the mean square, with size 1 in the normalised dimensions.
    """
    first = x.dim() - len(normalized_shape)
    inner, outer = tuple(range(first, x.dim())), tuple(range(first))
    grad, scale = wide(grad_out), wide(rstd)
    normal = wide(x) * scale
    grad_x = grad_weight = None
    if output_mask[0]:
        weighted = grad if weight is None else grad * wide(weight)
        mean = (weighted * normal).mean(inner, keepdim=True)
        grad_x = (scale * (weighted - normal * mean)).to(x.dtype)
    if output_mask[1] and weight is not None:
        summed = (grad * normal).sum(outer) if outer else grad * normal
        grad_weight = summed.to(weight.dtype)
    return grad_x, grad_weight


def widened(product: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``product`` of operands converted to the dtype that comes after them, and so its result."""

    def kernel(*arguments: Any, **factors: float) -> torch.Tensor:
        *operands, out_dtype = arguments
        return product(*(one.to(out_dtype) for one in operands), **factors)

    return kernel


KERNELS: dict[str, Callable[..., object]] = {
    "_fused_rms_norm_backward": rms_norm_backward,
    "mm.dtype": widened(torch.mm),
    "bmm.dtype": widened(torch.bmm),
    "addmm.dtype": widened(torch.addmm),
    "baddbmm.dtype": widened(torch.baddbmm),
}
