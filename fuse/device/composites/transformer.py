"""What ``nn.MultiheadAttention`` and ``nn.TransformerEncoderLayer`` call for inference.

PyTorch has one kernel a device for each. On the CPU a query that may see no key gives NaN here,
not the zeros of ``scaled_dot_product_attention``, which therefore serves calls without a mask.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from fuse.device.composites.registry import kernel, whole

_ATTENTION, _KEY_PADDING, _WHOLE = 0, 1, 2  # a mask's type, as nn.MultiheadAttention numbers them


def _hidden(mask: Tensor, kind: int | None) -> Tensor:
    """The mask, true where a key is not seen, over ``[batch, heads, queries, keys]``.

    One of numbers hides a key wherever it is not 0, as on the CPU: the modules make 0 and
    minus infinity of every mask.
    """
    mask = mask.to(torch.bool)
    if kind == _ATTENTION:
        return mask[None, None]
    if kind == _KEY_PADDING:
        return mask[:, None, None]
    if kind == _WHOLE:
        return mask
    raise RuntimeError(
        "Mask Type should be 0 (src_mask), 1 (src_key_padding_mask), or 2 (default_mask), "
        f"not {kind}"
    )


def _check(inputs: tuple[Tensor, ...], width: int, heads: int, weight: Tensor) -> None:
    for value in inputs:
        if value.dim() != 3:
            raise RuntimeError(f"expected 3-D `query`, got {value.dim()}-D tensor")
        if value.shape[2] != width:
            raise RuntimeError(
                f"passed-in embed_dim {width} didn't match last dim of query {value.shape[2]}"
            )
    if tuple(weight.shape) != (3 * width, width):
        raise RuntimeError(
            f"expected `qkv_weight` of shape [{3 * width}, {width}], got {list(weight.shape)}"
        )
    if heads <= 0 or width % heads:
        raise RuntimeError(f"`embed_dim` {width} must divide evenly by `num_head` {heads}")


@whole("_native_multi_head_attention")
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    _check((query, key, value), embed_dim, num_head, qkv_weight)
    # Apart also where all three are one tensor: a single product for them is no faster.
    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (F.linear(x, w, b).unflatten(2, (num_head, -1)).transpose(1, 2) for x, w, b in parts)
    weights = None
    if need_weights or mask is not None:
        scores = q * (1 / math.sqrt(embed_dim // num_head)) @ k.transpose(2, 3)
        if mask is not None:
            scores = scores.masked_fill(_hidden(mask, mask_type), -math.inf)
        weights = scores.softmax(-1)
        found = weights @ v
    else:
        found = F.scaled_dot_product_attention(q, k, v)
    result = F.linear(found.transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if weights is None or not need_weights:
        return result, None
    return result, weights.mean(1) if average_attn_weights else weights


@whole("_transformer_encoder_layer_fwd")
def _encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    def first_norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second_norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attend(x: Tensor) -> Tensor:
        projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        options = (mask, False, False, mask_type)
        found: Tensor = _attention(x, x, x, embed_dim, num_heads, *projections, *options)[0]
        return found

    def feed_forward(x: Tensor) -> Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(hidden) if use_gelu else F.relu(hidden), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(first_norm(src))
        return x + feed_forward(second_norm(x))
    x = first_norm(src + attend(src))
    return second_norm(x + feed_forward(x))


@kernel("_nested_tensor_from_mask_left_aligned")
def _may_be_nested(t: Tensor, mask: Tensor) -> bool:
    """``nn.TransformerEncoder`` asks before it packs padded sequences into a nested tensor, which
    the device does not have: it then passes the mask on instead."""
    return False


@kernel("_nested_tensor_from_mask")
def _nested(t: Tensor, mask: Tensor, mask_check: bool = True) -> Tensor:
    raise RuntimeError(
        "the tpu device has no nested tensors; make the nn.TransformerEncoder with "
        "enable_nested_tensor=False"
    )
