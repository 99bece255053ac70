"""Reading and writing a view of a buffer's array: its definition in terms of memory.

A buffer's value is a C-contiguous array. A view counts sizes, strides and offset in
elements of its own dtype over the buffer's bytes, and an ndarray is just that.
"""

from __future__ import annotations

import numpy as np

from fuse.trace.spec import ITEMSIZE, Layout, View


def read(base: np.ndarray, view: View, offset: int | None = None) -> np.ndarray:
    """The elements of ``view``, sharing memory with ``base``; not to be written to.

    ``offset`` replaces the view's own. Past the end of ``base`` lies memory of a storage that
    has grown (``resize_``) and that nothing was written to: zeros.
    """
    memory = _bytes(base)
    missing = _end(view, offset) - memory.size
    if missing > 0:
        memory = np.concatenate([memory, np.zeros(missing, np.uint8)])
    window = _window(memory, view, offset)
    window.flags.writeable = False
    return window


def write(
    base: np.ndarray | None,
    layout: Layout,
    view: View,
    value: np.ndarray,
    offset: int | None = None,
) -> np.ndarray:
    """A fresh array of ``layout``: the bytes of ``base``, the view's elements replaced.

    What lies past the end of ``base``, or all where there is none, is zeros. Where several of
    the view's elements lie in one place, the last one stays. A view that reaches outside of
    ``layout`` raises ``TypeError``.
    """
    result = np.zeros(layout.shape, layout.dtype)
    memory = _bytes(result)
    if base is not None:
        kept = min(base.nbytes, memory.size)
        memory[:kept] = _bytes(base)[:kept]
    _window(memory, view, offset)[...] = value
    return result


def _bytes(array: np.ndarray) -> np.ndarray:
    """The memory of a C-contiguous array: uint8[nbytes]."""
    return array.reshape(-1).view(np.uint8)


def _end(view: View, offset: int | None) -> int:
    """The byte after the view's last element."""
    if view.numel == 0:
        return 0
    start = view.offset if offset is None else offset
    extent = sum((size - 1) * step for size, step in zip(view.shape, view.strides, strict=True))
    return (start + extent + 1) * ITEMSIZE[view.dtype]


def _window(memory: np.ndarray, view: View, offset: int | None) -> np.ndarray:
    """An ndarray over ``memory``, which it keeps alive."""
    if view.numel == 0:
        return np.empty(view.shape, view.dtype)
    size = ITEMSIZE[view.dtype]
    start = view.offset if offset is None else offset
    strides = [stride * size for stride in view.strides]
    return np.ndarray(view.shape, view.dtype, buffer=memory, offset=start * size, strides=strides)
