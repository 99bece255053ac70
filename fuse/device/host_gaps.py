"""CPU kernels of single operators that PyTorch has for other devices alone.

The device runs them, so a call that runs on the host, because the shapes at its place keep
changing, needs them: the gradient of `rms_norm`, which the CPU composes of others, and products
of 16-bit matrices with a result of 32 bits. Calls of these with CPU tensors work from then on.
"""

from __future__ import annotations

import torch

from fuse.device.host_attention import wide


def register() -> torch.library.Library:
    """Hand the kernels to PyTorch; they last as long as the returned library."""
    library = torch.library.Library("aten", "IMPL", "CPU")
    library.impl("_fused_rms_norm_backward", rms_norm_backward)
    library.impl("mm.dtype", mm)
    library.impl("bmm.dtype", bmm)
    library.impl("addmm.dtype", addmm)
    library.impl("baddbmm.dtype", baddbmm)
    return library


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


def mm(x: torch.Tensor, y: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
    """``x[m, k] @ y[k, n]``, computed and returned in ``out_dtype``."""
    return torch.mm(x.to(out_dtype), y.to(out_dtype))


def bmm(x: torch.Tensor, y: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
    """``x[b, m, k] @ y[b, k, n]``, computed and returned in ``out_dtype``."""
    return torch.bmm(x.to(out_dtype), y.to(out_dtype))


def addmm(
    added: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    out_dtype: torch.dtype,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    """``beta * added + alpha * (x @ y)``, computed and returned in ``out_dtype``."""
    terms = (one.to(out_dtype) for one in (added, x, y))
    return torch.addmm(*terms, beta=beta, alpha=alpha)


def baddbmm(
    added: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    out_dtype: torch.dtype,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    """``addmm`` of batches of matrices."""
    terms = (one.to(out_dtype) for one in (added, x, y))
    return torch.baddbmm(*terms, beta=beta, alpha=alpha)
