"""Where resampling to another size reads, and with what weights: numbers of the shapes alone.

Every method is a weighted sum of source elements along one dimension after another. The
positions and weights are computed here in the precision that PyTorch's kernels use; backends
apply them to what the overloads are given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fuse.backends.context import A, Operation, Register, Result, Rule

_CUBIC, _CUBIC_ANTIALIASED = -0.75, -0.5  # the constants of OpenCV and of PIL


@dataclass(frozen=True)
class Axis:
    """Element ``o`` is the sum over ``t`` of ``weights[t][o]`` times source ``index[t][o]``.

    ``size`` is the length of the source. Without weights it is source ``index[0][o]`` itself.
    """

    size: int
    index: list[np.ndarray]
    weights: list[np.ndarray] | None = None


def _scale(size: int, out: int, align: bool, factor: float | None, kind: type) -> np.floating:
    """Source elements a target element; ``kind`` is the type PyTorch computes it in."""
    if align:
        return kind(size - 1) / kind(out - 1) if out > 1 else kind(0)
    return kind(1.0 / factor) if factor is not None and factor > 0 else kind(size) / kind(out)


def nearest(size: int, out: int, factor: float | None, exact: bool, whole: bool) -> Axis:
    """The source under the corner of a target element, or under its centre if ``exact``.

    PyTorch's CPU kernels do not ask the factor where the size stays or doubles, except in
    the forward pass of one dimension, of three, and of large images (which is not followed
    here); ``whole`` says that they do not.
    """
    if whole and not exact and out in (size, 2 * size):
        return Axis(size, [np.arange(out) * size // out])
    scale = _scale(size, out, False, factor, np.float32)
    place = np.arange(out, dtype=np.float32)
    place = (place + np.float32(0.5)) * scale if exact else place * scale
    return Axis(size, [np.minimum(np.floor(place).astype(np.int64), size - 1)])


def linear(size: int, out: int, align: bool, factor: float | None, kind: type) -> Axis:
    """Two neighbours, weighted by distance."""
    scale = _scale(size, out, align, factor, kind)
    target: np.ndarray = np.arange(out, dtype=kind)
    place = target * scale if align else np.maximum((target + kind(0.5)) * scale - kind(0.5), 0)
    first = np.minimum(place.astype(np.int64), size - 1)
    upper: np.ndarray = np.clip(place - first.astype(kind), 0, 1).astype(kind)
    second = first + (first < size - 1)
    return Axis(size, [first, second], [(kind(1) - upper).astype(kind), upper])


def cubic(size: int, out: int, align: bool, factor: float | None, kind: type) -> Axis:
    """Four neighbours, weighted by Keys' cubic convolution."""
    scale = _scale(size, out, align, factor, kind)
    target: np.ndarray = np.arange(out, dtype=kind)
    place = target * scale if align else (target + kind(0.5)) * scale - kind(0.5)
    first = np.floor(place)
    offset = place - first
    index = [np.clip(first.astype(np.int64) + tap - 1, 0, size - 1) for tap in range(4)]
    weights: list[np.ndarray] = [_keys(offset + 1 - tap, _CUBIC).astype(kind) for tap in range(4)]
    return Axis(size, index, weights)


def _keys(x: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel: R. Keys, Cubic convolution interpolation, IEEE TASSP 29 (1981)."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


_FILTERS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "bilinear2d": (_triangle, 1.0),
    "bicubic2d": (partial(_keys, a=_CUBIC_ANTIALIASED), 2.0),
    "lanczos2d": (_lanczos, 3.0),
}


def antialiased(
    method: str, size: int, out: int, align: bool, factor: float | None, kind: type
) -> Axis:
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
    return Axis(
        size,
        [np.minimum(place, size - 1) for place in index],
        [(weight / total).astype(kind) for weight in weights],
    )


def axes(
    method: str,
    sizes: Sequence[int],
    out: Sequence[int],
    args: tuple[Any, ...],
    double: bool,
    backward: bool = False,
) -> list[Axis]:
    """The axes of an ``upsample_*`` operator over its last dimensions, of ``sizes``.

    ``method`` is the operator's name without ``upsample_`` ("nearest2d", "bicubic2d_aa").
    ``args`` follow the sizes in its call: ``align_corners`` where it has it, then scales.
    """
    kind: type = np.float64 if double else np.float32
    whole = backward or len(sizes) == 2
    exact, plain = method.startswith("nearest_exact"), method.startswith("nearest")
    align, factors = (False, args) if plain else (args[0], args[1:])
    factors = factors or (None,) * len(sizes)
    found = []
    for size, parts, factor in zip(sizes, out, factors, strict=True):
        if plain:
            found.append(nearest(size, parts, factor, exact, whole))
        elif method.endswith("_aa"):
            name = method.removesuffix("_aa")
            found.append(antialiased(name, size, parts, align, factor, kind))
        else:
            make = cubic if method.startswith("bicubic") else linear
            found.append(make(size, parts, align, factor, kind))
    return found


_METHODS = (
    "nearest1d", "nearest2d", "nearest3d", "nearest_exact1d", "nearest_exact2d",
    "nearest_exact3d", "linear1d", "bilinear2d", "trilinear3d", "bicubic2d",
    "bilinear2d_aa", "bicubic2d_aa", "lanczos2d_aa",
)  # fmt: skip


def register_upsampling(rule: Register, forward: Rule, backward: Rule) -> None:
    """Give every overload of every method its rule.

    ``forward(ctx, x, axes, method)`` resamples along ``axes``; ``backward(ctx, grad, input_size,
    axes)`` is its transpose.
    """
    for method in _METHODS:
        private = "_" if "exact" in method or method.endswith("_aa") else ""
        name = f"{private}upsample_{method}"
        resized = _forward(method, forward)
        options = {} if method.startswith("nearest") else {"refuse": _refuse_others}
        rule(name, **options)(resized)
        rule(f"{name}.vec", **options)(_with_optional_size(resized))
        rule(f"{name}_backward", **options)(_backward(method, backward))


def _refuse_others(ctx: Operation[A], x: A, *_attributes: object) -> str | None:
    if "float" in str(x.dtype):
        return None
    return "interpolation of integers, which PyTorch rounds in its own way"


def _forward(method: str, compute: Rule) -> Rule:
    @functools.wraps(compute)
    def rule(ctx: Operation[A], x: A, output_size: tuple[int, ...], *attributes: Any) -> Result:
        sizes = x.shape[-len(output_size) :]
        how = axes(method, sizes, output_size, attributes, str(x.dtype) == "float64")
        return compute(ctx, x, how, method)

    return rule


def _with_optional_size(resized: Rule) -> Rule:
    """The overloads that take an optional size and a list of scale factors."""

    @functools.wraps(resized)
    def rule(
        ctx: Operation[A], x: A, _output_size: tuple[int, ...] | None, *attributes: Any
    ) -> Result:
        *align, factors = attributes
        sizes = ctx.out[0].shape[2:]
        scales = tuple(factors) if factors is not None else (None,) * len(sizes)
        return resized(ctx, x, sizes, *align, *scales)

    return rule


def _backward(method: str, compute: Rule) -> Rule:
    @functools.wraps(compute)
    def rule(
        ctx: Operation[A],
        grad: A,
        output_size: tuple[int, ...],
        input_size: tuple[int, ...],
        *attributes: Any,
    ) -> Result:
        sizes, double = input_size[-len(output_size) :], str(grad.dtype) == "float64"
        how = axes(method, sizes, output_size, attributes, double, backward=True)
        return compute(ctx, grad, input_size, how)

    return rule
