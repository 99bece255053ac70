"""Scaled dot-product attention and its gradient, written out.

With ``scores = scale * q @ k^T + bias`` and ``p = exp(scores - logsumexp(scores))``, the
output is ``p @ v``; the gradients follow from ``ds = p * (g @ v^T - sum(g * output))``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray


def _scale(query: Array, scale: float | None) -> float:
    return 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale


def _per_head(value: Array, heads: int) -> Array:
    """``[*, h, n, d]`` with grouped heads repeated."""
    return np.repeat(value, heads // value.shape[-3], axis=-3)


def _ungrouped(grad: Array, like: Array) -> Array:
    """The gradient of ``_per_head``: the sum of what a repeated head received."""
    repeats = grad.shape[-3] // like.shape[-3]
    return grad.reshape(*like.shape[:-2], repeats, *like.shape[-2:]).sum(axis=-3)


def _transposed(value: Array) -> Array:
    return value.swapaxes(-1, -2)


def _scores(query: Array, key: Array, scale: float, causal: bool, bias: Array | None) -> Array:
    """``[*, H, L, S]``; minus infinity where a query may not see a key."""
    scores = (query * query.dtype.type(scale)) @ _transposed(key)
    low = scores.dtype.type(-np.inf)
    if bias is not None and bias.dtype == np.bool_:
        scores = np.where(bias, scores, low)
    elif bias is not None:
        scores = scores + bias.astype(scores.dtype)
    if causal:  # aligned at the first query and key, as PyTorch's ``tril``
        scores = np.where(np.tri(*scores.shape[-2:]) == 1, scores, low)
    return scores


def _attend(
    ctx: RuleContext,
    query: Array,
    key: Array,
    value: Array,
    scale: float | None,
    causal: bool,
    bias: Array | None,
) -> tuple[Array, Array]:
    """Output ``[*, H, L, Ev]`` and the logarithm of the softmax denominators ``[*, H, L]``.

    A query that may see no key has output 0 and logarithm 0, as on PyTorch's CPU.
    """
    heads = query.shape[-3]
    q, k, v = (_per_head(ctx.widened(operand), heads) for operand in (query, key, value))
    scores = _scores(q, k, _scale(query, scale), causal, bias)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(top == -np.inf, np.zeros((), top.dtype), top)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    total = np.where(total == 0, np.ones((), total.dtype), total)
    return weights @ v / total, (top + np.log(total))[..., 0]


def _attend_gradient(
    ctx: RuleContext,
    operands: tuple[Array, ...],
    scale: float | None,
    causal: bool,
    bias: Array | None,
) -> tuple[Array, Array, Array, Array | None]:
    """Gradients of query, key, value and of an additive bias.

    ``operands`` are the output's gradient, query, key, value, output and logarithm.
    """
    grad, query, key, value, output, logarithm = operands
    wide = [ctx.widened(operand) for operand in (grad, query, key, value, output)]
    g, q, k, v, o = (_per_head(operand, query.shape[-3]) for operand in wide)
    factor = q.dtype.type(_scale(query, scale))
    scores = _scores(q, k, float(factor), causal, bias)
    weights = np.exp(scores - ctx.widened(logarithm).reshape(*scores.shape[:-1], 1))
    change = weights * (g @ _transposed(v) - np.sum(g * o, axis=-1, keepdims=True))
    grad_bias = None
    if bias is not None and bias.dtype != np.bool_:
        grad_bias = _unbroadcast(change, bias.shape)
    return (
        change @ k * factor,
        _ungrouped(_transposed(change) @ q * factor, key),
        _ungrouped(_transposed(weights) @ g, value),
        grad_bias,
    )


def _unbroadcast(value: Array, shape: tuple[int, ...]) -> Array:
    """Sum over the dimensions along which ``shape`` was broadcast."""
    padded = (1,) * (value.ndim - len(shape)) + shape
    summed = tuple(dim for dim, size in enumerate(padded) if size != value.shape[dim])
    return value.sum(axis=summed, keepdims=True).reshape(shape)


def _refuse_dropout(position: int) -> Callable[..., str | None]:
    """``position`` is that of the probability among the rule's arguments."""

    def refuse(*arguments: Any, **_options: object) -> str | None:
        given = len(arguments) > position and arguments[position]
        return "attention with dropout" if given else None

    return refuse


@rule("_scaled_dot_product_flash_attention_for_cpu", refuse=_refuse_dropout(4))
def _attention(
    ctx: RuleContext,
    query: Array,
    key: Array,
    value: Array,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Array | None = None,
    scale: float | None = None,
) -> tuple[Array, Array]:
    return _attend(ctx, query, key, value, scale, is_causal, attn_mask)


@rule("_scaled_dot_product_flash_attention_for_cpu_backward", refuse=_refuse_dropout(7))
def _attention_backward(
    ctx: RuleContext,
    grad_out: Array,
    query: Array,
    key: Array,
    value: Array,
    out: Array,
    logsumexp: Array,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Array | None = None,
    scale: float | None = None,
) -> tuple[Array, Array, Array]:
    operands = (grad_out, query, key, value, out, logsumexp)
    return _attend_gradient(ctx, operands, scale, is_causal, attn_mask)[:3]


@rule("_scaled_dot_product_fused_attention_overrideable", refuse=_refuse_dropout(5))
def _overrideable(
    ctx: RuleContext,
    query: Array,
    key: Array,
    value: Array,
    attn_bias: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Array | int | None, ...]:
    """The results that only CUDA kernels use are undefined, integers, or zero (seed, offset)."""
    output, logarithm = _attend(ctx, query, key, value, scale, is_causal, attn_bias)
    logarithm = logarithm.reshape(-1, *logarithm.shape[-2:])
    seed = np.zeros((), np.int64)
    return output, logarithm, None, None, query.shape[-2], key.shape[-2], seed, seed, None


@rule(
    "_scaled_dot_product_fused_attention_overrideable_backward",
    refuse=_refuse_dropout(13),
)
def _overrideable_backward(
    ctx: RuleContext,
    grad_out: Array,
    query: Array,
    key: Array,
    value: Array,
    attn_bias: Array | None,
    grad_input_mask: tuple[bool, ...],
    out: Array,
    logsumexp: Array,
    cum_seq_q: Array | None,
    cum_seq_k: Array | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Array,
    philox_offset: Array,
    *,
    scale: float | None = None,
) -> tuple[Array | None, ...]:
    operands = (grad_out, query, key, value, out, logsumexp)
    return _attend_gradient(ctx, operands, scale, is_causal, attn_bias)
