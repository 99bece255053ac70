"""Attention by PyTorch's own CPU kernel, called from inside the program."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp

from fuse.backends.xla.rules.attention_written import Scores, each, ungroup
from fuse.backends.xla.rules.elementwise import is_number
from fuse.backends.xla.rules.registry import RuleContext
from fuse.trace.spec import View, contiguous_strides

_LIBRARY_PRODUCTS: Final = 1 << 20  # multiplications from which on PyTorch's kernel is called


def can_and_should(
    ctx: RuleContext,
    scores: Scores,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *others: jax.Array,
) -> bool:
    """Whether PyTorch's CPU kernel can and should be called: see ``attention``."""
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


def _added(scores: Scores) -> jax.Array | None:
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
    scores: Scores,
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


def attend(
    ctx: RuleContext, scores: Scores, query: jax.Array, key: jax.Array, value: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """``attend`` by PyTorch's kernel, which returns ``[B, L, H, E]``."""
    heads = query.shape[1]
    operands = {"query": query, "key": each(key, heads), "value": each(value, heads)}
    sums = jax.ShapeDtypeStruct(query.shape[:3], query.dtype)
    output, logarithm = _called(ctx, scores, "attention", (_heads_inside(query), sums), operands)
    return output.transpose(0, 2, 1, 3), logarithm


def attend_gradient(
    ctx: RuleContext, scores: Scores, operands: dict[str, jax.Array], logarithm: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    """``attend_gradient`` by PyTorch's kernel."""
    key, value, heads = operands["key"], operands["value"], operands["query"].shape[1]
    operands = operands | {"key": each(key, heads), "value": each(value, heads)}
    results = tuple(_heads_inside(operands[name]) for name in ("query", "key", "value"))
    logarithm = logarithm.reshape(operands["query"].shape[:3])
    grads = _called(ctx, scores, "attention_gradient", results, operands, logarithm)
    grad_query, grad_key, grad_value = (grad.transpose(0, 2, 1, 3) for grad in grads)
    return grad_query, ungroup(grad_key, key, heads), ungroup(grad_value, value, heads), None
