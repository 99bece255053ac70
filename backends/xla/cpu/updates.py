"""Overwriting part of an array by a custom call, where XLA's own update is slow or wrong.

It is slow for a small part of a large array that a product then reads.

XLA's own update of a slice is in place where it stands alone or is fused with what reads it element
by element. But where its result is read in another shape by what XLA's CPU compiler does not fuse,
as products are, it evaluates the update twice, for the shape and for the result, and copies the
whole array for each: writing one token to a key-value cache copied the cache four times, 1.2 ms a
token for 4 MB. A custom call is evaluated once. But it is not fused, and wakes a thread, which a
lone update does not: so for such arrays only.

It is wrong where what is written is made of other elements of the same array, as in
``x[:, :5] = x.t()[:, :5].clone()``: jaxlib 0.10.2 fuses the reads with the update, in place, if
they see the array in different shapes, and reads elements that are written already.
"""

from __future__ import annotations

import functools
import operator
from typing import Final

import jax
import jax.numpy as jnp

from fuse.backends.base import Chunk
from fuse.backends.xla.aliasing import firsts
from fuse.backends.xla.cpu import kernels
from fuse.trace.operators import with_a
from fuse.trace.spec import View

LEAST: Final = 1 << 13
"""Bytes of an array whose copies cost more than the call, which is some 1 us."""
SPARSE: Final = 2
"""Elements of the array for each that is written: XLA writes larger parts with all its threads."""
READERS: Final = with_a("product") | {"_scaled_dot_product_fused_attention_overrideable"}


def updated(chunk: Chunk) -> frozenset[int]:
    """The values of ``chunk`` to be made by ``written`` from the ones before them."""
    return frozenset(_read_by_products(chunk) | _made_of_themselves(chunk))


def _read_by_products(chunk: Chunk) -> set[int]:
    read = {
        operand.value
        for node in chunk.nodes
        if node.target.partition(".")[0] in READERS
        for operand in node.operands
    }
    writes = (write for node in chunk.nodes for write in node.writes)
    return {
        write.value
        for write in writes
        if write.value in read
        and write.view.is_part(write.layout)
        and write.layout.nbytes >= LEAST
        and SPARSE * write.view.numel <= write.layout.numel
    }


def _made_of_themselves(chunk: Chunk) -> set[int]:
    """Updates by what was computed, in the chunk, from the same buffer.

    But for an operation in place, which reads the very elements that it writes.
    """
    found: set[int] = set()
    buffers = firsts(chunk)
    bits: dict[int, int] = {}  # of each buffer
    sources: dict[int, int] = {}  # of each value, the bits of the buffers that it is made of

    def bit(value: int) -> int:
        return 1 << bits.setdefault(buffers.get(value, value), len(bits))

    for node in chunk.nodes:
        seen = [sources.get(one.value, 0) | bit(one.value) for one in node.operands]
        made = functools.reduce(operator.or_, seen, 0)
        sources.update((output.value, made) for output in node.outputs)
        for write in node.writes:
            target = node.operands[write.operand]
            read = [
                mask
                for one, mask in zip(node.operands, seen, strict=True)
                if (one.value, one.view) != (target.value, write.view)
            ]
            if write.view.is_part(write.layout) and any(mask & bit(target.value) for mask in read):
                found.add(write.value)
            sources[write.value] = made
    return found


def written(
    base: jax.Array, view: View, value: jax.Array, offset: jax.Array | None = None
) -> jax.Array:
    """``base`` with the elements of ``view`` set to ``value``, in its memory where XLA can.

    Args:
        base: an array in row-major order, whose elements the view's strides count.
        value: an array of ``view.shape`` and the dtype of ``base``.
        offset: a 0-d int64 array that replaces ``view.offset``.
    """
    place = jnp.asarray(view.offset, jnp.int64) if offset is None else offset
    return kernels.overwrite("update", base, value, place, strides=view.strides)
