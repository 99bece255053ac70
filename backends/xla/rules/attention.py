"""Scaled dot-product attention and its gradient, written out so that XLA fuses the mask.

Spellings measured on XLA's CPU platform, two x86 cores, float32, causal, as a ratio to
PyTorch's own fused CPU kernel (best of interleaved runs, above 1 is faster):

==============================  ==============  =============  =============
spelling                        [16,6,64,32]    [4,8,256,64]   [8,4,64,32]
==============================  ==============  =============  =============
softmax, then product           1.07            1.8            0.6
product, then divided           1.08            2.2            0.5
the same, weights kept          1.2             2.3            0.5
gradient, rows are queries      1.1             2.4            1.0
==============================  ==============  =============  =============

"Kept" puts a barrier after the exponential, which XLA would otherwise evaluate once
for the sum and again for the product.

Where the device's native core is there, float32 goes to PyTorch's own kernel, called from inside
the program, unless the gradient of a bias is wanted: four causal attentions and their gradients
take 1.0 of PyTorch's time instead of 1.5, a training step of a small GPT 0.85 of what it took.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.xla.rules.elementwise import is_number, like
from fuse.backends.xla.rules.matmul import contract, materialised
from fuse.backends.xla.rules.registry import Number, RuleContext, Unsupported, rule
from fuse.trace.bind import named
from fuse.trace.node import Node, NumberArg
from fuse.trace.spec import View, contiguous_strides

_LIBRARY_PRODUCTS = 1 << 20  # multiplications from which on PyTorch's kernel is called


@dataclass(frozen=True)
class _Scores:
    """What turns products of queries and keys into scores."""

    scale: float | jax.Array
    causal: bool
    bias: jax.Array | None

    @classmethod
    def of(
        cls, query: jax.Array, scale: float | jax.Array | None, causal: bool, bias: jax.Array | None
    ) -> _Scores:
        width = max(query.shape[-1], 1)
        return cls(1 / math.sqrt(width) if scale is None else scale, causal, bias)

    def masked(self, scores: jax.Array, lead: tuple[int, ...]) -> jax.Array:
        """Add the bias to ``scores[*, L, S]`` and remove later keys; ``lead`` unflattens ``*``."""
        queries, keys = scores.shape[1:]
        if self.bias is not None:
            full = scores.reshape(*lead, queries, keys)
            if self.bias.dtype == jnp.bool_:
                full = jnp.where(self.bias, full, -jnp.inf)
            else:
                full = full + self.bias.astype(full.dtype)
            scores = full.reshape(scores.shape)
        return jnp.where(_past(queries, keys), scores, -jnp.inf) if self.causal else scores


def _past(queries: int, keys: int) -> jax.Array:
    """Which keys a query may see: aligned at the first query and key, as PyTorch's ``tril``."""
    shape = (queries, keys)
    rows = lax.broadcasted_iota(jnp.int32, shape, 0)
    return rows >= lax.broadcasted_iota(jnp.int32, shape, 1)


def _times(ctx: RuleContext, x: jax.Array, y: jax.Array) -> jax.Array:
    """``x[n, i, k] @ y[n, k, j]``."""
    return contract(ctx, x, y, (((2,), (1,)), ((0,), (0,))))


def _times_transposed(ctx: RuleContext, x: jax.Array, y: jax.Array) -> jax.Array:
    """``x[n, i, k] @ y[n, j, k]`` transposed to ``[n, i, j]``."""
    return contract(ctx, x, y, (((2,), (2,)), ((0,), (0,))))


def _transposed_times(ctx: RuleContext, x: jax.Array, y: jax.Array) -> jax.Array:
    """``x[n, k, i]`` transposed to ``[n, i, k]``, times ``y[n, k, j]``."""
    return contract(ctx, x, y, (((1,), (1,)), ((0,), (0,))))


def _each(value: jax.Array, heads: int) -> jax.Array:
    """Grouped heads of ``[*, h, n, d]`` repeated; others are left where they lie."""
    groups = value.shape[-3]
    return value if groups == heads else jnp.repeat(value, heads // groups, axis=-3)


def _flat(value: jax.Array, heads: int) -> jax.Array:
    """``[*, h, n, d]`` as ``[batch * heads, n, d]``, grouped heads repeated."""
    return _each(value, heads).reshape(-1, *value.shape[-2:])


def _ungroup(grad: jax.Array, like: jax.Array, heads: int) -> jax.Array:
    """Gradient of ``_each``: sum what a repeated head received."""
    shape = (*like.shape[:-2], heads // like.shape[-3], *like.shape[-2:])
    return jnp.sum(grad.reshape(shape), axis=-3)


def _kept(ctx: RuleContext, value: jax.Array) -> jax.Array:
    """A value that is kept on the CPU platform; a TPU's products compute their operands."""
    return materialised(value) if ctx.platform.name == "cpu" else value


def _products(ctx: RuleContext, q: jax.Array, k: jax.Array, scale: Number) -> jax.Array:
    """Scaled products of queries and keys: of the smaller array where that is exact enough."""
    if ctx.platform.name == "cpu":
        return _times_transposed(ctx, q * like(q, scale), k)
    product: jax.Array = _times_transposed(ctx, q, k)
    scaled: jax.Array = product * like(product, scale)
    return scaled


def _as(ctx: RuleContext, value: jax.Array, like: jax.Array) -> jax.Array:
    """A factor in the dtype of the other one: half precision is multiplied as such where the
    platform adds up the products in float32. So PyTorch's own fused kernels do.
    """
    return value if ctx.platform.name == "cpu" else value.astype(like.dtype)


def _operands(ctx: RuleContext, *values: jax.Array) -> list[jax.Array]:
    """The operands of products: in float32 on the CPU platform, elsewhere as they are."""
    return [ctx.widened(value) if ctx.platform.name == "cpu" else value for value in values]


def _attend(
    ctx: RuleContext, query: jax.Array, key: jax.Array, value: jax.Array, scores: _Scores
) -> tuple[jax.Array, jax.Array]:
    """Output ``[*, H, L, Ev]`` and the logarithm of the softmax denominators ``[*, H, L]``.

    A query that may see no key has output 0 and logarithm 0, as on PyTorch's CPU. A TPU's compiler
    knows a softmax where nothing lies between its steps, and divides before the product: 0.58 of
    the cycles on a v5e.
    """
    lead, heads = query.shape[:-2], query.shape[-3]
    if _by_library(ctx, scores, query, key, value):
        return _library(ctx, scores, query, key, value)
    q, k, v = (_flat(one, heads) for one in _operands(ctx, query, key, value))
    weights = scores.masked(_products(ctx, q, k, scores.scale), lead)
    top = jnp.max(weights, -1, keepdims=True, initial=-jnp.inf)
    blind = scores.bias is not None or k.shape[1] == 0  # otherwise every query sees a key
    if blind:
        top = jnp.where(top == -jnp.inf, 0, top)
    weights = _kept(ctx, jnp.exp(weights - top))
    total = jnp.sum(weights, -1, keepdims=True)
    if blind:
        total = jnp.where(total == 0, 1, total)
    if ctx.platform.name == "cpu":
        output = _times(ctx, weights, v) / total
    else:
        output = _times(ctx, _as(ctx, weights / total, v), v)
    logarithm = top + jnp.log(total)
    return output.reshape(*lead, *output.shape[1:]), logarithm.reshape(*lead, q.shape[1])


class _Forward(NamedTuple):
    """What attention read and made."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    output: jax.Array
    logarithm: jax.Array


def _attend_gradient(
    ctx: RuleContext,
    grad: jax.Array,
    forward: _Forward,
    scores: _Scores,
    of_bias: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """Gradients of query, key, value and, where it is wanted, of an additive bias."""
    query, key, value, output, logarithm = forward
    lead, heads = query.shape[:-2], query.shape[-3]
    if not of_bias and _by_library(ctx, scores, query, key, value, grad, output, logarithm):
        named = {"grad": grad, "query": query, "key": key, "value": value, "out": output}
        return _library_gradient(ctx, scores, named, logarithm)
    operands = _operands(ctx, grad, query, key, value, output)
    g, q, k, v, o = (_flat(operand, heads) for operand in operands)
    product = _products(ctx, q, k, scores.scale)
    exponent = scores.masked(product, lead) - logarithm.reshape(-1, q.shape[1], 1)
    weights = _kept(ctx, jnp.exp(exponent))
    mean = jnp.sum(ctx.widened(g) * ctx.widened(o), -1, keepdims=True)
    change = weights * (_times_transposed(ctx, g, v) - mean)
    scaled = _kept(ctx, _as(ctx, change * like(change, scores.scale), k))
    grad_query = _times(ctx, scaled, k).reshape(query.shape)
    grad_key = _ungroup(_transposed_times(ctx, scaled, q), key, heads)
    grad_value = _ungroup(_transposed_times(ctx, _as(ctx, weights, g), g), value, heads)
    bias, grad_bias = scores.bias, None
    if of_bias and bias is not None and bias.dtype != jnp.bool_:
        full = change.reshape(*lead, *change.shape[1:])
        padded = (1,) * (full.ndim - bias.ndim) + bias.shape
        summed = tuple(axis for axis, size in enumerate(padded) if size != full.shape[axis])
        grad_bias = jnp.sum(full, summed, keepdims=True).reshape(bias.shape)
    return grad_query, grad_key, grad_value, grad_bias


def _by_library(
    ctx: RuleContext,
    scores: _Scores,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *others: jax.Array,
) -> bool:
    """Whether PyTorch's CPU kernel can and should be called: see the table above."""
    return (
        not (scores.bias is not None and scores.causal)
        and is_number(scores.scale)  # an attribute of the kernel
        and ctx.platform.has_kernel("attention", query, key, value, *others)
        and query.ndim == 4
        and key.shape[1] == value.shape[1]
        and query.shape[1] % key.shape[1] == 0
        and query.shape[3] == key.shape[3] == value.shape[3]
        and query.size * key.shape[2] >= _LIBRARY_PRODUCTS
    )


def _added(scores: _Scores) -> jax.Array | None:
    """What the kernel adds to ``[B, H, L, S]`` scores, of four dimensions."""
    bias = scores.bias
    if bias is None:
        return None
    if bias.dtype == jnp.bool_:
        bias = jnp.where(bias, jnp.float32(0), jnp.float32(-jnp.inf))
    return bias.astype(jnp.float32).reshape((1,) * (4 - bias.ndim) + bias.shape)


def _part(ctx: RuleContext, value: jax.Array) -> tuple[jax.Array, tuple[int, ...]]:
    """The buffer that holds an operand, and sizes, strides and offset of the operand in it.

    So query, key and value, slices of one projection, are read without a copy. The kernel wants
    rows in one piece.
    """
    base, view = ctx.placed(value)
    if view.strides[-1] != 1:
        base, view = value, View("float32", value.shape, contiguous_strides(value.shape))
    return base, (*view.shape, *view.strides, view.offset)


def _heads_inside(value: jax.Array) -> jax.ShapeDtypeStruct:
    batch, heads, length, width = value.shape
    return jax.ShapeDtypeStruct((batch, length, heads, width), value.dtype)


def _called(
    ctx: RuleContext,
    scores: _Scores,
    target: str,
    results: tuple[jax.ShapeDtypeStruct, ...],
    operands: dict[str, jax.Array],
    *whole: jax.Array,
) -> Any:
    """Call a kernel on parts of buffers, by the names of its attributes, and ``whole`` ones."""
    parts = {name: _part(ctx, operand) for name, operand in operands.items()}
    bias = _added(scores)
    return ctx.platform.call(
        target,
        results,
        *(base for base, _ in parts.values()),
        *whole,
        parts["query"][0] if bias is None else bias,  # read by none: what is there, not a copy
        **{name: part for name, (_, part) in parts.items()},
        bias=() if bias is None else bias.shape,
        causal=scores.causal,
        scale=float(scores.scale),
    )


def _library(
    ctx: RuleContext, scores: _Scores, query: jax.Array, key: jax.Array, value: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """``_attend`` by PyTorch's kernel, which returns ``[B, L, H, E]``."""
    heads = query.shape[1]
    operands = {"query": query, "key": _each(key, heads), "value": _each(value, heads)}
    sums = jax.ShapeDtypeStruct(query.shape[:3], query.dtype)
    output, logarithm = _called(ctx, scores, "attention", (_heads_inside(query), sums), operands)
    return output.transpose(0, 2, 1, 3), logarithm


def _library_gradient(
    ctx: RuleContext, scores: _Scores, operands: dict[str, jax.Array], logarithm: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    """``_attend_gradient`` by PyTorch's kernel."""
    key, value, heads = operands["key"], operands["value"], operands["query"].shape[1]
    operands = operands | {"key": _each(key, heads), "value": _each(value, heads)}
    results = tuple(_heads_inside(operands[name]) for name in ("query", "key", "value"))
    logarithm = logarithm.reshape(operands["query"].shape[:3])
    grads = _called(ctx, scores, "attention_gradient", results, operands, logarithm)
    grad_query, grad_key, grad_value = (grad.transpose(0, 2, 1, 3) for grad in grads)
    return grad_query, _ungroup(grad_key, key, heads), _ungroup(grad_value, value, heads), None


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
    return _attend(ctx, query, key, value, _Scores.of(query, scale, is_causal, attn_mask))


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
    scores = _Scores.of(query, scale, is_causal, attn_mask)
    forward = _Forward(query, key, value, out, logsumexp)
    return _attend_gradient(ctx, grad_out, forward, scores)[:3]


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
    scores = _Scores.of(query, scale, is_causal, attn_bias)
    output, logarithm = _attend(ctx, query, key, value, scores)
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
    scores = _Scores.of(query, scale, is_causal, attn_bias)
    of_bias = grad_input_mask[3]
    forward = _Forward(query, key, value, out, logsumexp)
    return _attend_gradient(ctx, grad_out, forward, scores, of_bias)
