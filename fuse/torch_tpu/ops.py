"""``torch.tpu.ops``: TorchTPU's operators where PyTorch or JAX has the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import torch
import torch.nn.functional as F

from fuse.errors import describe
from fuse.kernels.kernel import Kernel


def splash_sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float | None = None,
    is_causal: bool = True,
    local_window_size: int | None = None,
    enable_gqa: bool = False,
    **blocks: Any,
) -> torch.Tensor:
    """Attention over ``[batch, heads, tokens, width]``: PyTorch's own, which the device fuses.

    With ``local_window_size`` a query sees itself and so many keys before it. Heads of ``k`` and
    ``v`` may be fewer. ``blocks``, the sizes of a TPU kernel's blocks, are left to the compiler.
    """
    mask = None
    if local_window_size is not None:
        apart = torch.arange(q.shape[-2], device=q.device)[:, None]
        apart = apart - torch.arange(k.shape[-2], device=q.device)
        mask, is_causal = (apart >= 0) & (apart <= local_window_size), False
    grouped = enable_gqa or q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=is_causal, scale=scale, enable_gqa=grouped
    )


def ragged_dot(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    group_sizes: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``[m, k]`` times ``[groups, k, n]``: consecutive rows by their group's matrix.

    ``group_sizes``, integers ``[groups]``, sum to ``m``. It is ``F.grouped_mm``.
    """
    ends = group_sizes.cumsum(0).to(torch.int32)
    found = F.grouped_mm(lhs, rhs, offs=ends)
    return found if out is None else out.copy_(found)


def ragged_dot_weight_grad(
    lhs: torch.Tensor, grad_output: torch.Tensor, group_sizes: torch.Tensor
) -> torch.Tensor:
    """The gradient ``[groups, k, n]`` of the matrices of ``ragged_dot``."""
    ends = group_sizes.cumsum(0).to(torch.int32)
    return F.grouped_mm(lhs.t(), grad_output, offs=ends)


_barrier = Kernel(
    lambda inputs: jax.lax.optimization_barrier(inputs), name="torch_tpu::optimization_barrier"
)


def optimization_barrier(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same values; the compiler fuses nothing across, where it keeps barriers (not on CPU)."""
    return list(_barrier(list(inputs)))


def max_pool1d(input: torch.Tensor, *args: Any) -> torch.Tensor:
    """``F.max_pool1d`` with kernel size, stride, padding, dilation and ceil mode."""
    found: torch.Tensor = F.max_pool1d(input, *args)
    return found


def max_pool2d(input: torch.Tensor, *args: Any) -> torch.Tensor:
    """``F.max_pool2d``, likewise."""
    found: torch.Tensor = F.max_pool2d(input, *args)
    return found


def max_pool3d(input: torch.Tensor, *args: Any) -> torch.Tensor:
    """``F.max_pool3d``, likewise."""
    found: torch.Tensor = F.max_pool3d(input, *args)
    return found


_SPARSE: Final = (
    "it is an operation of a TPU's SparseCores, which XLA does not offer",
    ("torch.nn.functional.embedding_bag and index_add run on the device"),
)
_RANKS: Final = "it is an operation of several ranks", "torch.distributed has it"
_NESTED: Final = (
    "jagged nested tensors are PyTorch's own here, of any length",
    "pad to a length with x.to_padded_tensor(padding, output_size)",
)
_POOLS: Final = "autograd calls it", "call backward() on what max_pool gives"
MISSING: Final = {
    "align_jagged_to_multiple": _NESTED,
    "strip_jagged_padding": _NESTED,
    "all_gather_dim": _RANKS,
    "reduce_scatter_dim": _RANKS,
    "ragged_all_to_all": _RANKS,
    "send": _RANKS,
    "recv": _RANKS,
    **{f"max_pool{rank}d_backward": _POOLS for rank in (1, 2, 3)},
    **dict.fromkeys(
        (
            "sparse_gather",
            "sparse_gather_backward",
            "sparse_iota",
            "sparse_map_row",
            "sparse_dense_matmul",
            "sparse_dense_matmul_activation_unstack",
            "sparse_dense_matmul_gradient_stack",
            "sparse_dense_matmul_grad_with_adagrad",
            "sparse_dense_matmul_grad_with_adam",
            "sparse_dense_matmul_grad_with_sgd",
        ),
        _SPARSE,
    ),
}
"""TorchTPU's other names: why they are not here, and what to use."""


def __getattr__(name: str) -> Any:
    if name not in MISSING:
        raise AttributeError(f"module 'torch.tpu.ops' has no attribute {name!r}")
    reason, hint = MISSING[name]
    raise AttributeError(describe(f"torch.tpu.ops.{name}: {reason}", hint=hint))
