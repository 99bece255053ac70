"""Reading and writing a view of a buffer's array: its definition in terms of memory.

A buffer's value is a C-contiguous array. A view counts sizes, strides and offset in
elements of its own dtype over the buffer's bytes, and an ndarray is just that.
"""

from __future__ import annotations

import numpy as np

from fuse.trace.spec import ITEMSIZE, Layout, View


def read(base: np.ndarray, view: View, offset: int | None = None) -> np.ndarray:
    """The elements of ``view``, sharing memory with ``base``; not to be written to.

    ``offset`` replaces the view's own. A view that reaches outside raises ``ValueError``.
    """
    window = _window(base, view, offset)
    window.flags.writeable = False
    return window


def write(
    base: np.ndarray | None, layout: Layout, view: View, value: np.ndarray, offset: int | None = None
) -> np.ndarray:
    """A fresh array of ``layout``: ``base`` with the view's elements replaced by ``value``.

    Without ``base`` (memory nothing was written to) the rest is zeros. Where several of the
    view's elements lie in one place, the last one stays.
    """
    if base is None:
        result = np.zeros(layout.shape, layout.dtype)
    else:
        result = np.array(base, order="C", copy=True)
    _window(result, view, offset)[...] = value
    return result


def _window(base: np.ndarray, view: View, offset: int | None) -> np.ndarray:
    """An ndarray over the memory of ``base``, which it keeps alive."""
    if view.numel == 0:
        return np.empty(view.shape, view.dtype)
    size = ITEMSIZE[view.dtype]
    start = view.offset if offset is None else offset
    return np.ndarray(
        view.shape,
        view.dtype,
        buffer=base.reshape(-1).view(np.uint8),
        offset=start * size,
        strides=[stride * size for stride in view.strides],
    )
