"""Attention in blocks of queries: of all scores ``[*, H, L, S]`` a block's are held at a time.

Each block is attention as it is written out, in a loop. What it costs beside that is one pass over
the gradients of keys and values a block, which are summed up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.backends.xla.rules import attention_written as written
from fuse.backends.xla.rules.attention_written import Forward, Scores, each, ungroup
from fuse.backends.xla.rules.registry import RuleContext

Arrays = tuple[jax.Array, ...]

SCORES: Final = 256 << 20
"""Bytes of scores that are held whole at most: what [8, 8, 1024, 1024] take in float32."""
BLOCK: Final = 64 << 20
"""Bytes of a block's scores. Causal [1, 8, 8192, 128] in bfloat16, both passes, takes a v5e 33.5 M
cycles with it, 37.0 with 32 MB, 52.4 with 256 MB; 44.8 whole."""
_SUBLANES: Final = 8  # a block has a multiple of them, the rows of a TPU's tile


@dataclass(frozen=True)
class Cut:
    """``length`` queries as ``count`` blocks of ``rows``; the last one is filled with zeros."""

    length: int
    rows: int
    count: int

    def padded(self, value: jax.Array, axis: int) -> jax.Array:
        """``value`` with zeros up to the end of the last block."""
        widths = [(0, 0)] * value.ndim
        widths[axis] = (0, self.rows * self.count - self.length)
        return jnp.pad(value, widths)

    def empty(self, shape: tuple[int, ...], dtype: Any, axis: int) -> jax.Array:
        """An array for the results of all blocks."""
        return self.padded(jnp.zeros(shape, dtype), axis)

    def cropped(self, value: jax.Array, axis: int) -> jax.Array:
        """The inverse of ``padded``."""
        return lax.slice_in_dim(value, 0, self.length, axis=axis)

    def taken(self, value: jax.Array, first: jax.Array, axis: int) -> jax.Array:
        """The block from ``first`` on."""
        return lax.dynamic_slice_in_dim(value, first, self.rows, axis=axis)

    def loop(self, body: Callable[[jax.Array, Arrays], Arrays], start: Arrays) -> Arrays:
        """``body`` of the first query of each block and what the last one returned.

        The counter has 32 bits, else a TPU's compiler does not say how often it runs.
        """
        count, rows = np.int32(self.count), np.int32(self.rows)
        state = (jnp.zeros((), jnp.int32), start)
        return lax.while_loop(
            lambda state: state[0] < count,
            lambda state: (state[0] + np.int32(1), body(state[0] * rows, state[1])),
            state,
        )[1]


def cut(ctx: RuleContext, query: jax.Array, key: jax.Array) -> Cut | None:
    """How queries are cut; ``None`` where all scores are few, or on the CPU platform.

    There PyTorch's kernel, which holds no scores, is called where they are many.
    """
    length = query.shape[-2]
    row = math.prod(query.shape[:-2]) * key.shape[-2] * max(query.dtype.itemsize, 4)
    if ctx.platform.name == "cpu" or row * length <= SCORES:
        return None
    count = -(-length // max(BLOCK // row // _SUBLANES * _SUBLANES, _SUBLANES))
    rows = -(-length // (count * _SUBLANES)) * _SUBLANES
    return Cut(length, rows, -(-length // rows)) if rows < length else None


def _padded(scores: Scores, blocks: Cut) -> Scores:
    bias = scores.bias
    if bias is None or not scores.has_rows():
        return scores
    return Scores(scores.scale, scores.causal, blocks.padded(bias, -2))


def attend(
    ctx: RuleContext,
    blocks: Cut,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    scores: Scores,
) -> tuple[jax.Array, jax.Array]:
    """What ``attention_written.attend`` returns, in the dtype of ``query``."""
    heads, lead = query.shape[-3], query.shape[:-1]
    key, value = each(key, heads), each(value, heads)
    queries, scores = blocks.padded(query, -2), _padded(scores, blocks)

    def body(first: jax.Array, made: Arrays) -> Arrays:
        part = blocks.taken(queries, first, -2)
        output, logarithm = written.attend(ctx, part, key, value, scores.block(first, blocks.rows))
        return _put(made[0], output, first, -2), _put(made[1], logarithm, first, -1)

    start = (
        blocks.empty((*lead, value.shape[-1]), query.dtype, -2),
        blocks.empty(lead, ctx.widened(query).dtype, -1),
    )
    output, logarithm = blocks.loop(body, start)
    return blocks.cropped(output, -2), blocks.cropped(logarithm, -1)


def _put(whole: jax.Array, part: jax.Array, first: jax.Array, axis: int) -> jax.Array:
    return lax.dynamic_update_slice_in_dim(whole, part.astype(whole.dtype), first, axis)


def attend_gradient(
    ctx: RuleContext,
    blocks: Cut,
    grad: jax.Array,
    forward: Forward,
    scores: Scores,
    of_bias: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """What ``attention_written.attend_gradient`` returns.

    Queries that fill the last block have gradients of zero, and add nothing to any other.
    """
    query, heads, wide = forward.query, forward.query.shape[-3], ctx.widened(forward.query).dtype
    key, value = each(forward.key, heads), each(forward.value, heads)
    bias, of_rows, scores = _trained(scores, of_bias), scores.has_rows(), _padded(scores, blocks)
    rows = [blocks.padded(one, -2) for one in (grad, query, forward.output)]
    logarithm = blocks.padded(forward.logarithm.reshape(query.shape[:-1]), -1)

    def body(first: jax.Array, made: Arrays) -> Arrays:
        g, q, o = (blocks.taken(one, first, -2) for one in rows)
        part = Forward(q, key, value, o, blocks.taken(logarithm, first, -1))
        own = scores.block(first, blocks.rows)
        found = written.attend_gradient(ctx, g, part, own, bias is not None)
        done = [_put(made[0], found[0], first, -2), made[1] + found[1], made[2] + found[2]]
        if found[3] is not None:
            done.append(_put(made[3], found[3], first, -2) if of_rows else made[3] + found[3])
        return tuple(done)

    whole = [jnp.zeros(one.shape, wide) for one in (key, value)]
    start = [blocks.empty(query.shape, query.dtype, -2), *whole]
    if bias is not None:
        zeros = jnp.zeros(bias.shape, wide)
        start.append(blocks.padded(zeros, -2) if of_rows else zeros)
    made = blocks.loop(body, tuple(start))
    grad_bias = made[3] if bias is not None else None
    if of_rows and grad_bias is not None:
        grad_bias = blocks.cropped(grad_bias, -2)
    grads = ungroup(made[1], forward.key, heads), ungroup(made[2], forward.value, heads)
    return blocks.cropped(made[0], -2), *grads, grad_bias


def _trained(scores: Scores, of_bias: bool) -> jax.Array | None:
    """The bias whose gradient is wanted; truth values have none."""
    bias = scores.bias if of_bias else None
    return None if bias is None or bias.dtype == jnp.bool_ else bias
