"""CPU kernels of the attention that PyTorch leaves to devices like this one.

``scaled_dot_product_attention`` calls ``_scaled_dot_product_fused_attention_overrideable`` here,
which has rules in the backends and no kernel on the CPU. A call that runs on the host all the
same, because the shapes at its place keep changing, needs one. Nothing else ever reaches it:
on CPU tensors PyTorch calls other operators. Mostly it is PyTorch's kernel for the CPU, which has
another name and takes neither grouped heads nor a bias of truth values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fuse.errors import UnsupportedError, describe
from fuse.trace.source import user_line

_LOW = (torch.float16, torch.bfloat16)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Attention over ``[B, H, L, E]``; results as the backends' rules give them.

    A query that may see no key has output 0 and logarithm 0.
    """
    if dropout_p:
        raise UnsupportedError(_dropped([query, key, value]))
    key, value = _each(key, query.size(1)), _each(value, query.size(1))
    if _has_kernel(query, key, value, attn_bias, is_causal):
        bias = _added(attn_bias, query)
        output, logarithm = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, is_causal, attn_mask=bias, scale=scale
        )
    else:
        scores = _scores(query, key, attn_bias, is_causal, scale)
        logarithm = scores.logsumexp(-1)
        logarithm = logarithm.masked_fill(logarithm == -math.inf, 0.0)
        weights = (scores - logarithm.unsqueeze(-1)).exp()
        output = (weights @ wide(value)).to(query.dtype)
    seed = torch.zeros((), dtype=torch.int64)
    return output, logarithm, None, None, query.size(-2), key.size(-2), seed, seed.clone(), None


def attend_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    grad_input_mask: list[bool],
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: torch.Tensor,
    philox_offset: torch.Tensor,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor | None, ...]:
    """Gradients from the output and the softmax's logarithms, of the bias where it is asked for."""
    groups, heads = key.size(1), query.size(1)
    key, value = _each(key, heads), _each(value, heads)
    if not grad_input_mask[3] and _has_kernel(query, key, value, attn_bias, is_causal):
        logarithm, bias = logsumexp.reshape(query.shape[:-1]), _added(attn_bias, query)
        grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad_out, query, key, value, out, logarithm, 0.0, is_causal, attn_mask=bias, scale=scale
        )
        return grads[0], _grouped(grads[1], groups), _grouped(grads[2], groups), None
    factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = _scores(query, key, attn_bias, is_causal, scale)
    weights = (scores - logsumexp.reshape(*scores.shape[:-1], 1)).exp()
    grad = wide(grad_out)
    grad_value = weights.transpose(-2, -1) @ grad
    mean = (grad * wide(out)).sum(-1, keepdim=True)
    change = weights * (grad @ wide(value).transpose(-2, -1) - mean)
    grad_query = change @ wide(key) * factor
    grad_key = change.transpose(-2, -1) @ wide(query) * factor
    grad_key, grad_value = _grouped(grad_key, groups), _grouped(grad_value, groups)
    grads = grad_query.to(query.dtype), grad_key.to(key.dtype), grad_value.to(value.dtype)
    if attn_bias is None or not grad_input_mask[3]:
        return *grads, None
    return *grads, change.sum_to_size(attn_bias.shape).to(attn_bias.dtype)


def _dropped(tensors: Sequence[torch.Tensor]) -> str:
    return describe(
        "attention with dropout is no operator of the device",
        operator="aten::_scaled_dot_product_fused_attention_overrideable",
        operands=[f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" for x in tensors],
        source=user_line(),
        hint="call torch.nn.functional.scaled_dot_product_attention, which writes it out",
    )


def _each(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Grouped heads ``[B, h, L, E]`` repeated; others are left where they lie."""
    return x if x.size(1) == heads else x.repeat_interleave(heads // x.size(1), 1)


def _grouped(grad: torch.Tensor, groups: int) -> torch.Tensor:
    """What a repeated head received, summed: the gradient of ``_each``."""
    return grad if grad.size(1) == groups else grad.unflatten(1, (groups, -1)).sum(2)


def _added(bias: torch.Tensor | None, query: torch.Tensor) -> torch.Tensor | None:
    """What PyTorch's kernel adds to the scores."""
    if bias is None or bias.dtype != torch.bool:
        return bias
    return torch.zeros_like(bias, dtype=query.dtype).masked_fill(~bias, -math.inf)


def _has_kernel(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    is_causal: bool,
) -> bool:
    """Whether PyTorch's kernel for the CPU computes it: one width, one reason not to look."""
    return (
        not (bias is not None and is_causal)
        and (bias is None or bias.dim() in (2, 4))
        and query.dim() == 4
        and query.size(1) == key.size(1) == value.size(1)
        and query.size(3) == key.size(3) == value.size(3)
        and all(x.numel() > 0 and x.stride(-1) == 1 for x in (query, key, value))
    )


def wide(x: torch.Tensor) -> torch.Tensor:
    """``x`` in the dtype that PyTorch's kernels compute in: float32 for those of 16 bits."""
    return x.float() if x.dtype in _LOW else x


def _scores(
    query: torch.Tensor,
    key: torch.Tensor,
    bias: torch.Tensor | None,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = wide(query) * factor @ wide(key).transpose(-2, -1)
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    if bias is None:
        return scores
    return scores.masked_fill(~bias, -math.inf) if bias.dtype == torch.bool else scores + bias


KERNELS: dict[str, Callable[..., object]] = {
    "_scaled_dot_product_fused_attention_overrideable": attend,
    "_scaled_dot_product_fused_attention_overrideable_backward": attend_backward,
}
