"""Resampling to another size: nearest, linear, cubic and antialiased, with gradients.

Every method is a weighted sum of source elements along one dimension after another
(``_Axis``): the source positions and weights are constants of the shapes, computed
here in the precision PyTorch's kernels use, and the gradient is the transposed sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fuse.backends.xla.rules.registry import RuleContext, Unsupported, rule

_CUBIC, _CUBIC_ANTIALIASED = -0.75, -0.5  # the constants of OpenCV and of PIL
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class _Axis:
    """Element ``o`` is the sum over ``t`` of ``weights[t][o]`` times source ``index[t][o]``."""

    size: int
    index: list[Array]
    weights: list[Array] | None = None

    def apply(self, x: jax.Array, axis: int) -> jax.Array:
        if self.weights is None:
            return self._picked(x, axis, self.index[0])
        shape = [1] * x.ndim
        shape[axis] = -1
        total: jax.Array | None = None
        for index, weight in zip(self.index, self.weights, strict=True):
            picked = self._picked(x, axis, index)
            term = picked * jnp.asarray(weight, x.dtype).reshape(shape)
            total = term if total is None else total + term
        assert total is not None
        return total

    def _picked(self, x: jax.Array, axis: int, index: Array) -> jax.Array:
        if len(index) == self.size and (index == np.arange(self.size)).all():
            return x
        times = len(index) // self.size
        if len(index) == times * self.size and (index == np.arange(len(index)) // times).all():
            return jnp.repeat(x, times, axis=axis)  # a broadcast, where a gather would cost more
        return jnp.take(x, index, axis=axis, mode="clip")


def _scale(size: int, out: int, align: bool, factor: float | None, kind: type) -> Any:
    """Source elements a target element; ``kind`` is the type PyTorch computes it in."""
    if align:
        return kind(size - 1) / kind(out - 1) if out > 1 else kind(0)
    return kind(1.0 / factor) if factor is not None and factor > 0 else kind(size) / kind(out)


def nearest(size: int, out: int, factor: float | None, exact: bool, whole: bool) -> _Axis:
    """The source under the corner of a target element, or under its centre if ``exact``.

    PyTorch's CPU kernels do not ask the factor where the size stays or doubles, except in
    the forward pass of one dimension, of three, and of large images (which is not followed
    here); ``whole`` says that they do not.
    """
    if whole and not exact and out in (size, 2 * size):
        return _Axis(size, [np.arange(out) * size // out])
    scale = _scale(size, out, False, factor, np.float32)
    place = np.arange(out, dtype=np.float32)
    place = (place + np.float32(0.5)) * scale if exact else place * scale
    return _Axis(size, [np.minimum(np.floor(place).astype(np.int64), size - 1)])


def linear(size: int, out: int, align: bool, factor: float | None, kind: type) -> _Axis:
    """Two neighbours, weighted by distance."""
    scale = _scale(size, out, align, factor, kind)
    target: Array = np.arange(out, dtype=kind)
    place = target * scale if align else np.maximum((target + kind(0.5)) * scale - kind(0.5), 0)
    first = np.minimum(place.astype(np.int64), size - 1)
    upper = np.clip(place - first.astype(kind), 0, 1).astype(kind)
    second = first + (first < size - 1)
    return _Axis(size, [first, second], [(kind(1) - upper).astype(kind), upper])


def cubic(size: int, out: int, align: bool, factor: float | None, kind: type) -> _Axis:
    """Four neighbours, weighted by Keys' cubic convolution."""
    scale = _scale(size, out, align, factor, kind)
    target: Array = np.arange(out, dtype=kind)
    place = target * scale if align else (target + kind(0.5)) * scale - kind(0.5)
    first = np.floor(place)
    offset = place - first
    index = [np.clip(first.astype(np.int64) + tap - 1, 0, size - 1) for tap in range(4)]
    weights = [_keys(offset + 1 - tap, _CUBIC).astype(kind) for tap in range(4)]
    return _Axis(size, index, weights)


def _keys(x: Any, a: float) -> Any:
    """Keys' kernel: R. Keys, Cubic convolution interpolation, IEEE TASSP 29 (1981)."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _triangle(x: Any) -> Any:
    return np.maximum(1 - np.abs(x), 0)


def _lanczos(x: Any) -> Any:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


_FILTERS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "bilinear2d": (_triangle, 1.0),
    "bicubic2d": (partial(_keys, a=_CUBIC_ANTIALIASED), 2.0),
    "lanczos2d": (_lanczos, 3.0),
}


def antialiased(
    method: str, size: int, out: int, align: bool, factor: float | None, kind: type
) -> _Axis:
    """The method's filter, widened by the scale where the target is smaller, normalised."""
    function, reach = _FILTERS[method]
    scale = _scale(size, out, align, factor, kind)
    wide = max(scale, kind(1))
    support = kind(reach) * wide
    centre = scale * (np.arange(out, dtype=kind) + kind(0.5))
    first = np.maximum((centre - support + kind(0.5)).astype(np.int64), 0)
    last = np.minimum((centre + support + kind(0.5)).astype(np.int64), size)
    index = [first + tap for tap in range(int(max(last - first, default=1)))]
    weights = [
        np.where(place < last, function((place - centre + kind(0.5)) / wide), 0) for place in index
    ]
    total = np.sum(weights, 0)
    total = np.where(total == 0, 1, total)
    return _Axis(
        size,
        [np.minimum(place, size - 1) for place in index],
        [(weight / total).astype(kind) for weight in weights],
    )


def _resample(x: jax.Array, axes: Sequence[_Axis]) -> jax.Array:
    # The last dimension first: the others then move whole rows.
    for number, axis in reversed(list(enumerate(axes))):
        x = axis.apply(x, x.ndim - len(axes) + number)
    return x


def _resample_gradient(grad: jax.Array, shape: Sequence[int], axes: Sequence[_Axis]) -> jax.Array:
    like = jnp.zeros(tuple(shape), grad.dtype)
    if grad.size == 0:
        return like
    (result,) = jax.linear_transpose(lambda value: _resample(value, axes), like)(grad)
    gradient: jax.Array = result
    return gradient


def _kind(x: jax.Array) -> type:
    return np.float64 if x.dtype == jnp.float64 else np.float32


def _axes(
    method: str,
    sizes: Sequence[int],
    out: Sequence[int],
    args: tuple[Any, ...],
    kind: type,
    backward: bool = False,
) -> list[_Axis]:
    """Axes of an operator called with ``args``: ``align_corners`` where it has it, then scales."""
    whole = backward or len(sizes) == 2
    exact, plain = method.startswith("nearest_exact"), method.startswith("nearest")
    align, factors = (False, args) if plain else (args[0], args[1:])
    factors = factors or (None,) * len(sizes)
    axes = []
    for size, parts, factor in zip(sizes, out, factors, strict=True):
        if plain:
            axes.append(nearest(size, parts, factor, exact, whole))
        elif method.endswith("_aa"):
            name = method.removesuffix("_aa")
            axes.append(antialiased(name, size, parts, align, factor, kind))
        else:
            make = cubic if method.startswith("bicubic") else linear
            axes.append(make(size, parts, align, factor, kind))
    return axes


def _check_dtype(method: str, x: jax.Array) -> None:
    if not method.startswith("nearest") and not jnp.issubdtype(x.dtype, jnp.floating):
        raise Unsupported("interpolation of integers, which PyTorch rounds in its own way")


def _upsample(
    method: str, ctx: RuleContext, x: jax.Array, output_size: tuple[int, ...], *args: Any
) -> jax.Array:
    _check_dtype(method, x)
    if x.size == 0:
        return jnp.zeros(ctx.out[0].shape, x.dtype)
    dims = len(output_size)
    wide = x if method.startswith("nearest") else ctx.widened(x)
    return _resample(wide, _axes(method, x.shape[-dims:], output_size, args, _kind(x)))


def _upsample_vec(
    method: str,
    ctx: RuleContext,
    x: jax.Array,
    output_size: tuple[int, ...] | None,
    *args: Any,
) -> jax.Array:
    """The overloads that take an optional size and a list of scale factors."""
    *align, factors = args
    sizes = ctx.out[0].shape[2:]
    scales = tuple(factors) if factors is not None else (None,) * len(sizes)
    return _upsample(method, ctx, x, sizes, *align, *scales)


def _upsample_backward(
    method: str,
    ctx: RuleContext,
    grad: jax.Array,
    output_size: tuple[int, ...],
    input_size: tuple[int, ...],
    *args: Any,
) -> jax.Array:
    _check_dtype(method, grad)
    if math.prod(input_size) == 0:
        return jnp.zeros(input_size, grad.dtype)
    dims = len(output_size)
    axes = _axes(method, input_size[-dims:], output_size, args, _kind(grad), backward=True)
    return _resample_gradient(ctx.widened(grad), input_size, axes)


for _method in (
    "nearest1d", "nearest2d", "nearest3d", "nearest_exact1d", "nearest_exact2d",
    "nearest_exact3d", "linear1d", "bilinear2d", "trilinear3d", "bicubic2d",
    "bilinear2d_aa", "bicubic2d_aa", "lanczos2d_aa",
):  # fmt: skip
    _private = "_" if "exact" in _method or _method.endswith("_aa") else ""
    rule(f"{_private}upsample_{_method}")(partial(_upsample, _method))
    rule(f"{_private}upsample_{_method}.vec")(partial(_upsample_vec, _method))
    rule(f"{_private}upsample_{_method}_backward")(partial(_upsample_backward, _method))
