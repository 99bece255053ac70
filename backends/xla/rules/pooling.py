"""Maximum and average pooling over one to three dimensions, and their gradients.

Every window is reduced one dimension at a time, as a chain of strided slices: XLA
fuses the chain into one loop, where ``reduce_window`` on the CPU platform takes 1.2
to 5 times as long and cannot return indices cheaply. The gradient of a maximum goes
back through the stored indices. Windows that do not overlap need only a comparison;
others scatter on the CPU platform (0.1 ms for [8,32,32,32], 3x3, stride 2, against
0.8 ms for a sum of padded masks) and add padded masks on accelerators, where a
scatter would add in no fixed order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.backends.pooling import Pooling
from fuse.backends.xla.rules.registry import Number, RuleContext, rule

_MOST_SLICES = 32


@dataclass(frozen=True)
class Windows:
    """Windows along one dimension.

    Element ``j`` of window ``o`` is ``o*stride - padding + j*dilation``; ``starts`` and
    ``ends`` replace that formula where windows are of unequal size.
    """

    size: int
    out: int
    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    starts: tuple[int, ...] | None = None
    ends: tuple[int, ...] | None = None

    @property
    def disjoint(self) -> bool:
        """Whether no element is in two windows, and a fixed stride says in which."""
        return self.starts is None and self.dilation == 1 and self.kernel <= self.stride

    @property
    def tiles(self) -> bool:
        """Whether windows stand side by side within the input, without gaps or padding."""
        beside = self.disjoint and self.kernel == self.stride and self.padding == 0
        return beside and self.out * self.kernel <= self.size

    def positions(self, tap: int) -> np.ndarray:
        """Where element ``tap`` of every window lies; negative or too large in the padding."""
        if self.starts is not None and self.ends is not None:
            place = np.array(self.starts) + tap
            return np.where(place < np.array(self.ends), place, self.size)
        return np.arange(self.out) * self.stride - self.padding + tap * self.dilation

    @property
    def first(self) -> np.ndarray:
        """The first place of every window that is not in the padding before the input."""
        place = self.positions(0)
        return np.where(place < 0, place % self.dilation, place)

    def taps(self, value: jax.Array, axis: int, fill: Number) -> list[jax.Array]:
        """For each place in the window, the elements there; ``fill`` in the padding."""
        if self.starts is not None:
            return [self._gathered(value, axis, fill, tap) for tap in range(self.kernel)]
        last = (self.out - 1) * self.stride
        needed = last + (self.kernel - 1) * self.dilation + 1
        config = [(0, 0, 0)] * value.ndim
        config[axis] = (self.padding, needed - self.size - self.padding, 0)
        if any(config[axis]):
            value = lax.pad(value, jnp.asarray(fill, value.dtype), config)
        starts = (tap * self.dilation for tap in range(self.kernel))
        return [
            lax.slice_in_dim(value, start, start + last + 1, self.stride, axis) for start in starts
        ]

    def _gathered(self, value: jax.Array, axis: int, fill: Number, tap: int) -> jax.Array:
        place = self.positions(tap)
        taken = jnp.take(value, np.minimum(place, self.size - 1), axis=axis, mode="clip")
        inside = place < self.size
        if inside.all():
            return taken
        return jnp.where(_along(inside, axis, value.ndim), taken, jnp.asarray(fill, value.dtype))


def _along(values: np.ndarray, axis: int, rank: int) -> jax.Array:
    """A vector laid along dimension ``axis`` of an array of rank ``rank``."""
    return jnp.asarray(values).reshape([-1 if dim == axis else 1 for dim in range(rank)])


def _adaptive(size: int, parts: int) -> Windows:
    if parts and size % parts == 0:
        return Windows(size, parts, kernel=size // parts, stride=size // parts)
    starts = tuple(part * size // parts for part in range(parts))
    ends = tuple(-(-(part + 1) * size // parts) for part in range(parts))
    kernel = max((end - start for start, end in zip(starts, ends, strict=True)), default=1)
    return Windows(size, parts, kernel, starts=starts, ends=ends)


def _chain_maximum(x: jax.Array, windows: Sequence[Windows]) -> tuple[jax.Array, jax.Array]:
    """The greatest element of each window and its flat position in the pooled dimensions.

    The first of equal elements wins, and the last NaN of a window, as in PyTorch; a window of
    padding alone has the lowest value, at its first position.
    """
    inexact = jnp.issubdtype(x.dtype, jnp.inexact)
    lowest = -math.inf if inexact else np.iinfo(x.dtype).min
    index = first = jnp.zeros((1,) * x.ndim, jnp.int32)
    scale = 1
    for number, window in reversed(list(enumerate(windows))):
        axis = x.ndim - len(windows) + number
        values = window.taps(x, axis, lowest)
        innermost = number == len(windows) - 1
        inner = [index] * window.kernel if innermost else window.taps(index, axis, 0)
        best = best_index = None
        unseen = np.ones(window.out, bool)
        for tap, (value, rest) in enumerate(zip(values, inner, strict=True)):
            place = window.positions(tap)
            position = _along((place * scale).astype(np.int32), axis, x.ndim) + rest
            position = jnp.broadcast_to(position, value.shape)
            if best is None or best_index is None:
                best, best_index = value, position
            else:
                wins = value > best
                wins = wins | (value != value) if inexact else wins
                if unseen.any():  # so far only padding, which equals the lowest value
                    wins = wins | _along(unseen, axis, x.ndim)
                best = jnp.where(wins, value, best)
                best_index = jnp.where(wins, position, best_index)
            unseen = unseen & ((place < 0) | (place >= window.size))
        assert best is not None and best_index is not None
        first = first + _along((window.first * scale).astype(np.int32), axis, x.ndim)
        if unseen.any():
            best_index = jnp.where(_along(unseen, axis, x.ndim), first, best_index)
        x, index, scale = best, best_index, scale * window.size
    return x, index


def _tile_maximum(x: jax.Array, windows: Sequence[Windows]) -> tuple[jax.Array, jax.Array]:
    """``_chain_maximum`` where every window is a tile: all its elements are compared at once.

    One tap is then one slice of a reshaped array and its offset one constant: 42 us for
    [64,16,8,8] and 2x2 tiles, where the chain takes 300 and PyTorch's kernel 47 (two cores).
    """
    lead = x.ndim - len(windows)
    limits = [*x.shape[:lead], *(window.out * window.kernel for window in windows)]
    # By itself: fused into what makes ``x``, the comparisons would not be vectorised.
    x = lax.optimization_barrier(lax.slice(x, [0] * x.ndim, limits))
    parts = [size for window in windows for size in (window.out, window.kernel)]
    tiles = x.reshape(*x.shape[:lead], *parts)
    spans = [math.prod(window.size for window in windows[at + 1 :]) for at in range(len(windows))]
    best = offset = None
    for corner in itertools.product(*(range(window.kernel) for window in windows)):
        picked = [part for place in corner for part in (slice(None), place)]
        value = tiles[(..., *picked)]
        here = jnp.int32(sum(place * span for place, span in zip(corner, spans, strict=True)))
        if best is None or offset is None:
            best, offset = value, jnp.full(value.shape, here)
        else:
            wins = (value > best) | (value != value)
            best, offset = jnp.where(wins, value, best), jnp.where(wins, here, offset)
    assert best is not None and offset is not None
    for number, (window, span) in enumerate(zip(windows, spans, strict=True)):
        first = (np.arange(window.out) * window.kernel * span).astype(np.int32)
        offset = offset + _along(first, lead + number, x.ndim)
    return best, offset


def _maximum_gradient(
    ctx: RuleContext,
    grad: jax.Array,
    index: jax.Array,
    like: jax.Array,
    windows: Sequence[Windows],
) -> jax.Array:
    """Send each ``grad`` to the element of an input like ``like`` that ``index`` names."""
    index = index.astype(jnp.int32)
    if grad.size == 0 or like.size == 0:
        return jnp.zeros(like.shape, grad.dtype)
    sizes = like.shape[-len(windows) :]
    if all(window.disjoint for window in windows):
        for number, window in enumerate(windows):
            axis = grad.ndim - len(windows) + number
            grad, index = (_spread(value, window, axis, -1) for value in (grad, index))
        flat = jnp.arange(math.prod(sizes), dtype=index.dtype).reshape(sizes)
        return jnp.where(index == flat, grad, jnp.zeros((), grad.dtype))
    if ctx.platform.name == "cpu" or any(window.starts is not None for window in windows):
        return scatter(grad, index, sizes)
    return _masks(grad, index, sizes, windows)


def _spread(value: jax.Array, window: Windows, axis: int, fill: int) -> jax.Array:
    """Give every element the value of its window; ``fill`` between and after windows."""
    repeated = jnp.repeat(value, window.stride, axis=axis) if window.stride > 1 else value
    config = [(0, 0, 0)] * value.ndim
    covered = window.out * window.stride - window.padding
    config[axis] = (-window.padding, window.size - covered, 0)
    if not any(config[axis]):
        return repeated
    return lax.pad(repeated, jnp.asarray(fill, value.dtype), config)


def scatter(grad: jax.Array, index: jax.Array, sizes: Sequence[int]) -> jax.Array:
    """Add ``grad`` at flat positions ``index`` of zeros; leading dimensions are independent."""
    lead = grad.shape[: grad.ndim - len(sizes)]
    rows, flat = math.prod(lead), math.prod(sizes)
    row = jnp.arange(rows, dtype=jnp.int32)[:, None] * flat
    target = (row + index.reshape(rows, -1).astype(jnp.int32)).reshape(-1)
    zeros = jnp.zeros((rows * flat,), grad.dtype)
    return zeros.at[target].add(grad.reshape(-1), mode="drop").reshape(*lead, *sizes)


def _masks(
    grad: jax.Array, index: jax.Array, sizes: Sequence[int], windows: Sequence[Windows]
) -> jax.Array:
    """The same sum, one padded and dilated mask for every place in the window."""
    lead = grad.ndim - len(windows)
    total = jnp.zeros((*grad.shape[:lead], *sizes), grad.dtype)
    zero = jnp.zeros((), grad.dtype)
    for corner in itertools.product(*(range(window.kernel) for window in windows)):
        flat: jax.Array | int = 0
        config = [(0, 0, 0)] * lead
        for number, (tap, window) in enumerate(zip(corner, windows, strict=True)):
            place = window.positions(tap)
            flat = flat * window.size + _along(place, lead + number, grad.ndim)
            first, last = int(place[0]), int(place[-1])
            config.append((first, window.size - 1 - last, window.stride - 1))
        total = total + lax.pad(jnp.where(index == flat, grad, zero), zero, config)
    return total


def _window_sums(x: jax.Array, windows: Sequence[Windows]) -> jax.Array:
    """The sum of every window; padding counts as zero."""
    for number, window in enumerate(windows):
        axis = x.ndim - len(windows) + number
        if window.out == 1 and window.kernel == window.size and not window.padding:
            x = jnp.sum(x, axis, keepdims=True, dtype=x.dtype)
        elif window.kernel <= _MOST_SLICES or window.starts is not None:
            taps = window.taps(x, axis, 0)
            x = sum(taps[1:], start=taps[0])
        else:
            x = _reduced(x, window, axis)
    return x


def _reduced(x: jax.Array, window: Windows, axis: int) -> jax.Array:
    """Sums of long windows."""
    needed = (window.out - 1) * window.stride + window.kernel
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (window.padding, needed - window.size - window.padding, 0)
    zero = np.zeros((), x.dtype)  # not a traced zero: JAX must see a sum, which it can transpose
    x = lax.pad(x, jnp.asarray(zero), config)
    shape, strides = [1] * x.ndim, [1] * x.ndim
    shape[axis], strides[axis] = window.kernel, window.stride
    total: jax.Array = lax.reduce_window(x, zero, lax.add, shape, strides, "VALID")
    return total


def _divisors(windows: Sequence[Windows], include_padding: bool) -> np.ndarray:
    """The number of elements that each window counts; a scalar where all are equal."""
    product: np.ndarray = np.ones((), np.int64)
    for window in windows:
        if window.starts is not None and window.ends is not None:
            count = np.array(window.ends) - np.array(window.starts)
        else:
            start = window.positions(0)
            end = np.minimum(start + window.kernel, window.size + window.padding)
            if not include_padding:
                start, end = np.maximum(start, 0), np.minimum(end, window.size)
            count = np.maximum(end - start, 1)
        product = product[..., None] * count
    return product.flat[0] if product.size and (product == product.flat[0]).all() else product


def _divided(x: jax.Array, by: jax.Array | np.ndarray | int) -> jax.Array:
    """Quotient in the dtype of ``x``; integers truncate as in C."""
    divisor = jnp.broadcast_to(jnp.asarray(by).astype(x.dtype), x.shape)
    return lax.div(x, divisor)


def _average_gradient(
    ctx: RuleContext,
    grad: jax.Array,
    like: jax.Array,
    windows: Sequence[Windows],
    by: jax.Array | np.ndarray | int,
) -> jax.Array:
    """Give every element of an input like ``like`` the sum of its windows' ``grad / by``."""
    grad = _divided(grad, by)
    if grad.size == 0 or like.size == 0:
        return jnp.zeros(like.shape, grad.dtype)
    if all(window.disjoint and window.kernel == window.stride for window in windows):
        for number, window in enumerate(windows):
            grad = _spread(grad, window, grad.ndim - len(windows) + number, 0)
        return grad
    shape = jnp.zeros(like.shape, grad.dtype)
    (result,) = jax.linear_transpose(lambda value: _window_sums(value, windows), shape)(grad)
    gradient: jax.Array = result
    return gradient


def _maximum(
    ctx: RuleContext, x: jax.Array, windows: Sequence[Windows]
) -> tuple[jax.Array, jax.Array]:
    out = ctx.out[0].shape
    if math.prod(out) == 0:
        return jnp.zeros(out, x.dtype), jnp.zeros(out, jnp.int64)
    tiled = all(window.tiles for window in windows)
    if tiled and math.prod(window.kernel for window in windows) <= _MOST_SLICES:
        return _tile_maximum(x, windows)
    return _chain_maximum(x, windows)


def _average(
    ctx: RuleContext, x: jax.Array, windows: Sequence[Windows], by: jax.Array | np.ndarray | int
) -> jax.Array:
    out = ctx.out[0].shape
    if math.prod(out) == 0:
        return jnp.zeros(out, x.dtype)
    return _divided(_window_sums(x, windows), by)


Pooling(
    regular=Windows,
    adaptive=_adaptive,
    divisors=_divisors,
    maximum=_maximum,
    maximum_gradient=_maximum_gradient,
    average=_average,
    average_gradient=_average_gradient,
).register(rule)
