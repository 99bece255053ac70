"""Overwriting a small part of a large array, in place.

XLA's own update of a slice is in place too where it stands alone, but XLA's CPU compiler evaluates
it once for every reader that it fuses it with, each time on a whole copy of the array: writing one
token to a key-value cache copied the cache four times, 1.8 ms a token for 4 MB. A custom call is
evaluated once.
"""

from __future__ import annotations

from typing import Final

import jax
import jax.numpy as jnp

from fuse.backends.xla import host_kernels
from fuse.trace.spec import Layout, View

LEAST: Final = 1 << 13
"""Bytes of an array whose copies cost more than the call, which is some 1 us."""
SPARSE: Final = 2
"""Elements of the array for each that is written: XLA writes larger parts with all its threads."""


def suits(platform: str, layout: Layout, view: View) -> bool:
    """Whether ``written`` is the way to write ``view`` into an array of ``layout``."""
    return (
        host_kernels.known(platform)
        and layout.nbytes >= LEAST
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
