"""Sequences that lie behind one another, and the same padded to one length."""

from __future__ import annotations

import numpy as np

from fuse.backends.jagged import padding
from fuse.backends.numpy.rules.elementwise import like
from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray


@rule("_jagged_to_padded_dense_forward")
def _to_padded(
    ctx: RuleContext,
    values: Array,
    offsets: list[Array],
    max_lengths: tuple[int, ...],
    padding_value: float,
) -> Array:
    """``[rows, ...]`` to ``[sequences, length, ...]``; what is longer is cut off."""
    number = padding(padding_value, values.dtype.name)
    result = np.full(ctx.out[0].shape, like(values, number))
    for padded, start, end in zip(result, offsets[0][:-1], offsets[0][1:], strict=True):
        sequence = values[start:end][: len(padded)]
        padded[: len(sequence)] = sequence
    return result


@rule("_padded_dense_to_jagged_forward")
def _to_jagged(ctx: RuleContext, dense: Array, offsets: list[Array], total_L: int) -> Array:
    """``[sequences, length, ...]`` to ``[rows, ...]``; 0 where there is none, as past a length."""
    result = np.zeros(ctx.out[0].shape, dense.dtype)
    for padded, start, end in zip(dense, offsets[0][:-1], offsets[0][1:], strict=True):
        rows = result[start:end][: len(padded)]
        rows[:] = padded[: len(rows)]
    return result
