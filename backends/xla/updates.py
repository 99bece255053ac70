"""Overwriting a small part of a large array that a product then reads, in place.

XLA's own update of a slice is in place where it stands alone or is fused with what reads it element
by element. But where its result is read in another shape by what XLA's CPU compiler does not fuse,
as products are, it evaluates the update twice, for the shape and for the result, and copies the
whole array for each: writing one token to a key-value cache copied the cache four times, 1.2 ms a
token for 4 MB. A custom call is evaluated once. But it is not fused, and wakes a thread, which a
lone update does not: so for such arrays only.
"""

from __future__ import annotations

from typing import Final

import jax
import jax.numpy as jnp

from fuse.backends.base import Chunk
from fuse.backends.xla import host_kernels
from fuse.trace.node import Write
from fuse.trace.spec import View

LEAST: Final = 1 << 13
"""Bytes of an array whose copies cost more than the call, which is some 1 us."""
SPARSE: Final = 2
"""Elements of the array for each that is written: XLA writes larger parts with all its threads."""
PRODUCTS: Final = frozenset(
    [
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "addbmm",
        "mv",
        "addmv",
        "dot",
        "_scaled_dot_product_fused_attention_overrideable",
    ]
)


def updated(chunk: Chunk, platform: str) -> frozenset[int]:
    """The values of ``chunk`` to be made by ``written`` from the ones before them."""
    if not host_kernels.known(platform):
        return frozenset()
    read = {
        operand.value
        for node in chunk.nodes
        if node.target.partition(".")[0] in PRODUCTS
        for operand in node.operands
    }
    writes = (write for node in chunk.nodes for write in node.writes)
    return frozenset(write.value for write in writes if write.value in read and _is_part(write))


def _is_part(write: Write) -> bool:
    layout, view = write.layout, write.view
    return (
        layout.nbytes >= LEAST
        and layout.dtype == view.dtype
        and 0 < SPARSE * view.numel <= layout.numel
    )


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
    return host_kernels.overwrite("fuse_update", base, value, place, strides=view.strides)
