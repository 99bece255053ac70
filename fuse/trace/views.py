"""How to compute a view from the dense array its buffer holds.

A ``View`` is sizes, strides and an offset over flat memory; XLA and its like know
arrays, not memory. ``resolve`` finds a shape of the flat array on whose dimensions the
view is a slice with steps, followed by a transpose and a broadcast; only what has no
such shape (overlapping windows, mostly) is left to a gather.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from fuse.trace.spec import ITEMSIZE, Layout, View, contiguous_strides


@dataclass(frozen=True, slots=True)
class Resolution:
    """A recipe for reading ``view`` from the array of ``layout``.

    Of kind ``"strided"``, these steps in order, each left out where it changes nothing:

    1. reinterpret the flat array's bytes as ``view.dtype``;
    2. take ``flat_length`` elements from ``flat_start``, append ``padding`` elements of
       any value (they are never selected), and reshape to ``base_shape``;
    3. on every base dimension take ``sizes`` elements from ``starts`` with ``steps``;
    4. drop the base dimensions not in ``axes`` (of each one element was taken) and bring
       the others into the order of ``axes``;
    5. reshape to ``inner_shape`` and broadcast to ``view.shape``.

    Of kind ``"gather"``, the flat indices are ``offset + sum(index_d * stride_d)`` and
    the other fields say nothing. ``windowed`` says that step 2 starts at the view's own
    offset, where otherwise ``flat_start`` is 0 and the offset lives in ``starts``.
    """

    layout: Layout
    view: View
    kind: Literal["strided", "gather"]
    flat_start: int = 0
    flat_length: int = 0
    padding: int = 0
    windowed: bool = False
    base_shape: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()
    inner_shape: tuple[int, ...] = ()

    @property
    def reinterprets(self) -> bool:
        """Whether the view's dtype is not the buffer's."""
        return self.view.dtype != self.layout.dtype

    @property
    def takes_all(self) -> bool:
        """Whether the view reaches every byte of the buffer: a reshape and transpose of it."""
        return (
            self.kind == "strided"
            and self.sizes == self.base_shape
            and not self.padding
            and self.flat_length * ITEMSIZE[self.view.dtype] == self.layout.nbytes
        )

    @property
    def permutation(self) -> tuple[int, ...]:
        """``axes`` renumbered among themselves: what transposes the kept dimensions."""
        ranks = {axis: rank for rank, axis in enumerate(sorted(self.axes))}
        return tuple(ranks[axis] for axis in self.axes)

    @property
    def is_reshape(self) -> bool:
        """Whether the view is the buffer's array with its dimensions cut otherwise."""
        return (
            self.takes_all
            and not self.reinterprets
            and list(self.axes) == sorted(self.axes)
            and self.inner_shape == self.view.shape
        )


@lru_cache(maxsize=8192)
def resolve(layout: Layout, view: View) -> Resolution:
    """Find the cheapest recipe for ``view`` over a buffer of ``layout``.

    Raises:
        ValueError: the view reaches outside the buffer or has a negative stride.
    """
    numel = layout.nbytes // ITEMSIZE[view.dtype]
    _check_bounds(numel, layout, view)
    inner = tuple(
        1 if stride == 0 else size for size, stride in zip(view.shape, view.strides, strict=True)
    )
    if view.numel == 0:
        return Resolution(
            layout, view, "strided", base_shape=(0,), starts=(0,), sizes=(0,), steps=(1,),
            axes=(0,), inner_shape=view.shape,
        )  # fmt: skip
    if _is_dense(view) and view.offset == 0 and view.numel == numel:
        return _whole(layout, view, numel)
    window = _window(layout, view, numel, inner)
    if window is not None and len(layout.shape) == 1 and _is_dense(view):
        return window
    strides = [stride for _, stride in _moving_dims(view)]
    shape = _shape_in(layout, view.dtype, numel)
    refined = _chain_shape(numel, [*strides, *contiguous_strides(shape)])
    for base_shape in (shape, refined, _chain_shape(numel, strides)):
        found = _fit(layout, view, base_shape, inner)
        if found is not None:
            return found
    return window or Resolution(layout, view, "gather", inner_shape=inner)


def dynamic_bounds(layout: Layout, view: View) -> tuple[tuple[int, int, int], ...] | None:
    """Say which other offsets the recipe of ``view`` serves with nothing but new starts.

    Returns a ``(stride, size, extent)`` for each dimension that has a start. Offset ``o``
    is served iff, dimension by dimension, ``start = o // stride; o %= stride`` gives
    ``start + extent < size``, and the last remainder is 0. ``None``: only its own.
    """
    if view.numel and view.last >= layout.nbytes // ITEMSIZE[view.dtype]:
        return None  # of a storage that has grown past its value
    found = resolve(layout, view)
    if found.kind == "gather":
        return None
    if view.numel == 0:
        return ((1, sys.maxsize, 0),)
    if found.windowed:
        numel = layout.nbytes // ITEMSIZE[view.dtype]
        return ((1, numel, found.flat_length - 1),)
    strides = contiguous_strides(found.base_shape)
    extents = ((size - 1) * step for size, step in zip(found.sizes, found.steps, strict=True))
    return tuple(zip(strides, found.base_shape, extents, strict=True)) or ((1, 1, 0),)


def _check_bounds(numel: int, layout: Layout, view: View) -> None:
    if any(stride < 0 for stride in view.strides) or view.offset < 0:
        raise ValueError(f"view {view} has a negative stride or offset")
    if view.numel and view.last >= numel:
        raise ValueError(f"view {view} reaches outside its buffer {layout}")


def _moving_dims(view: View) -> list[tuple[int, int]]:
    """``(size, stride)`` of the dimensions that move through memory, in view order."""
    pairs = zip(view.shape, view.strides, strict=True)
    return [(size, stride) for size, stride in pairs if size > 1 and stride > 0]


def _is_dense(view: View) -> bool:
    """Whether the elements lie side by side in row-major order (size-1 dims may lie)."""
    expected = 1
    for size, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _whole(layout: Layout, view: View, numel: int) -> Resolution:
    axes = tuple(dim for dim, size in enumerate(view.shape) if size > 1)
    zeros, ones = (0,) * len(view.shape), (1,) * len(view.shape)
    return Resolution(
        layout, view, "strided", flat_length=numel, base_shape=view.shape, starts=zeros,
        sizes=view.shape, steps=ones, axes=axes, inner_shape=view.shape,
    )  # fmt: skip


def _shape_in(layout: Layout, dtype: str, numel: int) -> tuple[int, ...]:
    """The layout's shape counted in elements of ``dtype``; flat where rows do not divide."""
    if not layout.shape:
        return (numel,) if numel != 1 else ()
    row = layout.shape[-1] * ITEMSIZE[layout.dtype]
    if row % ITEMSIZE[dtype]:
        return (numel,)
    return (*layout.shape[:-1], row // ITEMSIZE[dtype])


def _chain_shape(numel: int, strides: list[int]) -> tuple[int, ...]:
    """Factor ``numel`` so that its row-major strides divide, in turn, all of ``strides``.

    Each base stride is the greatest common divisor of the one before and the next
    wanted: where it is smaller than wanted, the slice takes steps.
    """
    shape, outer = [], numel
    for wanted in sorted(set(strides) | {1}, reverse=True):
        inner = math.gcd(outer, wanted)
        if inner != outer:
            shape.append(outer // inner)
            outer = inner
    return tuple(shape)


def _place(
    base_shape: tuple[int, ...], view: View, offset: int
) -> tuple[list[int], list[int], list[int], list[int]] | None:
    """Map each moving view dim to a base dim: starts, sizes, steps and axes, or ``None``.

    A view stride can only sit on the base dim with the largest stride not above it: on
    an inner one its steps would leave the dimension.
    """
    base_strides = contiguous_strides(base_shape)
    starts, sizes = [0] * len(base_shape), [1] * len(base_shape)
    steps, axes = [1] * len(base_shape), []
    for size, stride in _moving_dims(view):
        fitting = (
            dim
            for dim, base_stride in enumerate(base_strides)
            if base_shape[dim] > 1 and base_stride <= stride
        )
        dim = next(fitting, None)
        if dim is None or dim in axes or stride % base_strides[dim]:
            return None
        sizes[dim], steps[dim] = size, stride // base_strides[dim]
        axes.append(dim)
    for dim, base_stride in enumerate(base_strides):
        starts[dim], offset = divmod(offset, base_stride)
        if starts[dim] + (sizes[dim] - 1) * steps[dim] >= base_shape[dim]:
            return None
    return starts, sizes, steps, axes


def _fit(
    layout: Layout, view: View, base_shape: tuple[int, ...], inner: tuple[int, ...]
) -> Resolution | None:
    placed = _place(base_shape, view, view.offset)
    if placed is None:
        return None
    starts, sizes, steps, axes = map(tuple, placed)
    return Resolution(
        layout, view, "strided", flat_length=math.prod(base_shape), base_shape=base_shape,
        starts=starts, sizes=sizes, steps=steps, axes=axes, inner_shape=inner,
    )  # fmt: skip


def _window(layout: Layout, view: View, numel: int, inner: tuple[int, ...]) -> Resolution | None:
    """Cut a flat window at the view's offset, so that all starts within it are 0."""
    moving = _moving_dims(view)
    if not moving:
        return None
    size, outermost = max(moving, key=lambda pair: pair[1])
    span = view.last + 1 - view.offset
    full = size * outermost if len(moving) > 1 or outermost == 1 else span
    taken = full if view.offset + full <= numel else span
    base_shape = (full,) if len(moving) == 1 else _chain_shape(full, [s for _, s in moving])
    placed = _place(base_shape, view, 0)
    if placed is None:
        return None
    starts, sizes, steps, axes = map(tuple, placed)
    return Resolution(
        layout, view, "strided", flat_start=view.offset, flat_length=taken,
        padding=full - taken, windowed=True, base_shape=base_shape, starts=starts,
        sizes=sizes, steps=steps, axes=axes, inner_shape=inner,
    )  # fmt: skip
