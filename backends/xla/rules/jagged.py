"""Sequences that lie behind one another, and the same padded to one length.

Offsets say where each of the sequences begins and ends; no shape depends on them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.jagged import padding
from fuse.backends.xla.rules.elementwise import like
from fuse.backends.xla.rules.indexing import take_along
from fuse.backends.xla.rules.registry import RuleContext, rule

Array = jax.Array
_FEW = 512
"""Sequences up to which a row is compared with the ends of all of them, which is one fusion."""


def _over(mask: Array, value: Array) -> Array:
    """A mask of the first dimensions, over all elements."""
    return jnp.broadcast_to(lax.expand_dims(mask, range(mask.ndim, value.ndim)), value.shape)


@rule("_jagged_to_padded_dense_forward", static=("padding_value",))
def _to_padded(
    ctx: RuleContext,
    values: Array,
    offsets: list[Array],
    max_lengths: tuple[int, ...],
    padding_value: float,
) -> Array:
    """``[rows, ...]`` to ``[sequences, length, ...]``; what is longer is cut off."""
    shape = ctx.out[0].shape
    padded = like(values, padding(padding_value, values.dtype.name))
    padded = jnp.broadcast_to(padded, shape)
    if values.size == 0 or 0 in shape:
        return padded
    starts, ends = offsets[0][:-1, None], offsets[0][1:, None]
    rows = starts + lax.broadcasted_iota(starts.dtype, shape[:2], 1)
    found = take_along(values, jnp.clip(rows, 0, values.shape[0] - 1), 0)
    return lax.select(_over(rows < ends, found), found, padded)


@rule("_padded_dense_to_jagged_forward")
def _to_jagged(ctx: RuleContext, dense: Array, offsets: list[Array], total_L: int) -> Array:
    """``[sequences, length, ...]`` to ``[rows, ...]``; 0 where there is none, as past a length."""
    shape = ctx.out[0].shape
    if dense.size == 0 or 0 in shape:
        return jnp.zeros(shape, dense.dtype)
    sequences, length = dense.shape[:2]
    rows = lax.iota(offsets[0].dtype, shape[0])
    method = "compare_all" if sequences <= _FEW else "scan"
    sequence = jnp.searchsorted(offsets[0], rows, side="right", method=method) - 1
    known = jnp.clip(sequence, 0, sequences - 1)
    place = rows - jnp.take(offsets[0], known, mode="clip")
    inside = (sequence == known) & (place < length)
    flat = known.astype(rows.dtype) * length + jnp.clip(place, 0, length - 1)
    found = take_along(dense.reshape((sequences * length, *dense.shape[2:])), flat, 0)
    return lax.select(_over(inside, found), found, jnp.zeros_like(found))
