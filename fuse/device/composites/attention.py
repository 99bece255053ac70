"""The attention that PyTorch's distributed tensors know how to share out, as the device's own.

``choose_attention`` in the native core names it for them: DTensor and context parallel have rules
for the operators of PyTorch's CUDA kernels, and none for the one that devices like this override.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fuse.device.composites.registry import kernel


@kernel("_scaled_dot_product_efficient_attention")
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The logarithms are ``[B, H, L]``: CUDA's are padded to a multiple of 32, so that contexts of
    another length cannot be merged there."""
    found = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(
        query, key, value, attn_bias, dropout_p, is_causal, scale=scale
    )
    output, logarithm, seed, offset = found[0], found[1], found[6], found[7]
    if not compute_log_sumexp:
        logarithm = logarithm[:, :, :0]
    return output, logarithm, seed, offset


@kernel("_scaled_dot_product_efficient_attention_backward")
def _attend_backward(
    grad_out_: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    forward = (query, key, value, attn_bias, out, logsumexp)
    state = (philox_seed, philox_offset)
    found = gradients(grad_out_, *forward, state, dropout_p, grad_input_mask, is_causal, scale)
    # The device gives zeros for a bias that needs none, of which DTensor has no specification.
    return (*found[:3], found[3] if grad_input_mask[3] else None)


def gradients(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    state: Sequence[Tensor],
    dropout_p: float = 0.0,
    wanted: Sequence[bool] = (True, True, True, False),
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    """Of query, key, value and bias, by the device's operator; ``wanted`` says which.

    All but ``logsumexp``, ``[B, H, L]``, are ``[B, H, L, E]``; ``state`` is that of dropout.
    """
    found: tuple[Tensor, ...]
    found = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward(
        grad_out,
        query,
        key,
        value,
        bias,
        list(wanted),
        out,
        logsumexp,
        None,
        None,
        query.size(-2),
        key.size(-2),
        dropout_p,
        is_causal,
        *state,
        scale=scale,
    )
    return found
