"""Attention and its gradient in XLA's own terms, so that XLA fuses mask and softmax.

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
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.xla.rules.elementwise import like
from fuse.backends.xla.rules.matmul import contract, materialised
from fuse.backends.xla.rules.registry import Number, RuleContext


@dataclass(frozen=True)
class Scores:
    """What turns products of queries and keys into scores.

    Attributes:
        scale: what products are multiplied by.
        causal: whether query ``i`` sees keys up to ``i`` only.
        bias: added to the scores, or where booleans are true what a query sees; it broadcasts to
            ``[*, H, L, S]``.
        first: the number of the first query, where the queries are a block of all.
    """

    scale: float | jax.Array
    causal: bool
    bias: jax.Array | None
    first: int | jax.Array = 0

    @classmethod
    def of(
        cls, query: jax.Array, scale: float | jax.Array | None, causal: bool, bias: jax.Array | None
    ) -> Scores:
        """Those of PyTorch's arguments."""
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
        if self.causal:
            scores = jnp.where(_past(queries, keys, self.first), scores, -jnp.inf)
        return scores

    def has_rows(self) -> bool:
        """Whether the bias differs from query to query."""
        return self.bias is not None and self.bias.ndim > 1 and self.bias.shape[-2] > 1

    def block(self, first: jax.Array, rows: int) -> Scores:
        """Those of ``rows`` queries from ``first`` on."""
        bias = self.bias
        if bias is not None and self.has_rows():
            bias = lax.dynamic_slice_in_dim(bias, first, rows, axis=-2)
        return replace(self, bias=bias, first=first)


def _past(queries: int, keys: int, first: int | jax.Array) -> jax.Array:
    """Which keys a query may see: aligned at the first query and key, as PyTorch's ``tril``."""
    shape = (queries, keys)
    rows = lax.broadcasted_iota(jnp.int32, shape, 0) + first
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


def each(value: jax.Array, heads: int) -> jax.Array:
    """Grouped heads of ``[*, h, n, d]`` repeated; others are left where they lie."""
    groups = value.shape[-3]
    return value if groups == heads else jnp.repeat(value, heads // groups, axis=-3)


def _flat(value: jax.Array, heads: int) -> jax.Array:
    """``[*, h, n, d]`` as ``[batch * heads, n, d]``, grouped heads repeated."""
    return each(value, heads).reshape(-1, *value.shape[-2:])


def ungroup(grad: jax.Array, like: jax.Array, heads: int) -> jax.Array:
    """Gradient of ``each``: sum what a repeated head received."""
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


def attend(
    ctx: RuleContext, query: jax.Array, key: jax.Array, value: jax.Array, scores: Scores
) -> tuple[jax.Array, jax.Array]:
    """Output ``[*, H, L, Ev]`` and the logarithm of the softmax denominators ``[*, H, L]``.

    A query that may see no key has output 0 and logarithm 0, as on PyTorch's CPU. A TPU's compiler
    knows a softmax where nothing lies between its steps, and divides before the product: 0.58 of
    the cycles on a v5e.
    """
    lead, heads = query.shape[:-2], query.shape[-3]
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


class Forward(NamedTuple):
    """What attention read and made."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    output: jax.Array
    logarithm: jax.Array


def attend_gradient(
    ctx: RuleContext,
    grad: jax.Array,
    forward: Forward,
    scores: Scores,
    of_bias: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """Gradients of query, key, value and, where it is wanted, of an additive bias."""
    query, key, value, output, logarithm = forward
    lead, heads = query.shape[:-2], query.shape[-3]
    operands = _operands(ctx, grad, query, key, value, output)
    g, q, k, v, o = (_flat(operand, heads) for operand in operands)
    product = _products(ctx, q, k, scores.scale)
    exponent = scores.masked(product, lead) - logarithm.reshape(-1, q.shape[1], 1)
    weights = _kept(ctx, jnp.exp(exponent))
    mean = jnp.sum(ctx.widened(g) * ctx.widened(o), -1, keepdims=True)
    change = weights * (_times_transposed(ctx, g, v) - mean)
    scaled = _kept(ctx, _as(ctx, change * like(change, scores.scale), k))
    grad_query = _times(ctx, scaled, k).reshape(query.shape)
    grad_key = ungroup(_transposed_times(ctx, scaled, q), key, heads)
    grad_value = ungroup(_transposed_times(ctx, _as(ctx, weights, g), g), value, heads)
    bias, grad_bias = scores.bias, None
    if of_bias and bias is not None and bias.dtype != jnp.bool_:
        full = change.reshape(*lead, *change.shape[1:])
        padded = (1,) * (full.ndim - bias.ndim) + bias.shape
        summed = tuple(axis for axis, size in enumerate(padded) if size != full.shape[axis])
        grad_bias = jnp.sum(full, summed, keepdims=True).reshape(bias.shape)
    return grad_query, grad_key, grad_value, grad_bias
