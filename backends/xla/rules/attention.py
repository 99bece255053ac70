"""Scaled dot-product attention and its gradient: which way each goes.

On the CPU platform, where the device's native core is there, float32 goes to PyTorch's own kernel,
called from inside the program, unless the gradient of a bias is wanted: four causal attentions and
their gradients take 1.0 of PyTorch's time instead of 1.5, a training step of a small GPT 0.85 of
what it took. Elsewhere a platform may have a kernel; without one scores are written out, in blocks
of queries where they are many.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fuse.backends.xla.platform import Attention
from fuse.backends.xla.rules import (
    attention_blocks as blocks,
    attention_library as library,
    attention_written as written,
)
from fuse.backends.xla.rules.attention_written import Forward, Scores
from fuse.backends.xla.rules.registry import RuleContext, Unsupported, rule
from fuse.trace.bind import named
from fuse.trace.node import Node, NumberArg


def _asked(
    ctx: RuleContext, query: jax.Array, key: jax.Array, value: jax.Array, scores: Scores
) -> Attention:
    inside, bias = ctx.order(query) == (0, 2, 1, 3), scores.bias

    def constant() -> np.ndarray | None:
        return None if bias is None else ctx.constant(bias)

    return Attention(query, key, value, scores.causal, scores.scale, bias, inside, constant)


def attend(
    ctx: RuleContext, query: jax.Array, key: jax.Array, value: jax.Array, scores: Scores
) -> tuple[jax.Array, jax.Array]:
    """Output ``[*, H, L, Ev]`` and the logarithm of the softmax denominators ``[*, H, L]``."""
    if library.can_and_should(ctx, scores, query, key, value):
        return library.attend(ctx, scores, query, key, value)
    found = ctx.platform.attention(_asked(ctx, query, key, value, scores))
    if found is not None:
        return found
    cut = blocks.cut(ctx, query, key)
    if cut is not None:
        return blocks.attend(ctx, cut, query, key, value, scores)
    return written.attend(ctx, query, key, value, scores)


def attend_gradient(
    ctx: RuleContext, grad: jax.Array, forward: Forward, scores: Scores, of_bias: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """Gradients of query, key, value and, where it is wanted, of an additive bias."""
    query, key, value, output, logarithm = forward
    tensors = (query, key, value, grad, output, logarithm)
    if not of_bias and library.can_and_should(ctx, scores, *tensors):
        named = {"grad": grad, "query": query, "key": key, "value": value, "out": output}
        return library.attend_gradient(ctx, scores, named, logarithm)
    if not of_bias:
        asked = _asked(ctx, query, key, value, scores)
        grads = ctx.platform.attention_gradient(asked, grad, output, logarithm)
        if grads is not None:
            return (*grads, None)
    cut = blocks.cut(ctx, query, key)
    if cut is not None:
        return blocks.attend_gradient(ctx, cut, grad, forward, scores, of_bias)
    return written.attend_gradient(ctx, grad, forward, scores, of_bias)


def _without_dropout(probability: float) -> None:
    if probability:
        raise Unsupported("attention with dropout")


def _drops(node: Node) -> bool:
    dropout = named(node)["dropout_p"]
    return bool(dropout.number if isinstance(dropout, NumberArg) else dropout) or bool(node.dynamic)


@rule("_scaled_dot_product_flash_attention_for_cpu", may_refuse=_drops)
def _attention(
    ctx: RuleContext,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: jax.Array | None = None,
    scale: float | jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    _without_dropout(dropout_p)
    return attend(ctx, query, key, value, Scores.of(query, scale, is_causal, attn_mask))


@rule("_scaled_dot_product_flash_attention_for_cpu_backward", may_refuse=_drops)
def _attention_backward(
    ctx: RuleContext,
    grad_out: jax.Array,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    out: jax.Array,
    logsumexp: jax.Array,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: jax.Array | None = None,
    scale: float | jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    _without_dropout(dropout_p)
    scores = Scores.of(query, scale, is_causal, attn_mask)
    forward = Forward(query, key, value, out, logsumexp)
    return attend_gradient(ctx, grad_out, forward, scores)[:3]


@rule("_scaled_dot_product_fused_attention_overrideable", may_refuse=_drops)
def _overrideable(
    ctx: RuleContext,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    attn_bias: jax.Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | jax.Array | None = None,
) -> tuple[jax.Array | int | None, ...]:
    """The results that only CUDA kernels use are undefined, integers, or zero (seed, offset)."""
    _without_dropout(dropout_p)
    scores = Scores.of(query, scale, is_causal, attn_bias)
    output, logarithm = attend(ctx, query, key, value, scores)
    logarithm = logarithm.reshape(-1, *logarithm.shape[-2:])
    seed = jnp.zeros((), jnp.int64)
    return output, logarithm, None, None, query.shape[-2], key.shape[-2], seed, seed, None


@rule("_scaled_dot_product_fused_attention_overrideable_backward", may_refuse=_drops)
def _overrideable_backward(
    ctx: RuleContext,
    grad_out: jax.Array,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    attn_bias: jax.Array | None,
    grad_input_mask: tuple[bool, ...],
    out: jax.Array,
    logsumexp: jax.Array,
    cum_seq_q: jax.Array | None,
    cum_seq_k: jax.Array | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: jax.Array,
    philox_offset: jax.Array,
    *,
    scale: float | jax.Array | None = None,
) -> tuple[jax.Array | None, ...]:
    _without_dropout(dropout_p)
    scores = Scores.of(query, scale, is_causal, attn_bias)
    of_bias = grad_input_mask[3]
    forward = Forward(query, key, value, out, logsumexp)
    return attend_gradient(ctx, grad_out, forward, scores, of_bias)
