"""Pooling's overloads for every backend: the windows of each dimension, and what they count."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fuse.backends.context import A, Array, Operation, Register, Result, Rule

Shape = tuple[int, ...]
W = TypeVar("W")
"""What a backend makes of the windows along one pooled dimension."""


@dataclass(frozen=True)
class Pooling(Generic[W]):
    """A backend's arithmetic on windows, and ``register``, which makes rules of it.

    Attributes:
        regular: the windows along one dimension, of ``(size, out, kernel, stride, padding,
            dilation)``.
        adaptive: windows that cut one dimension into equal parts, of ``(size, parts)``.
        divisors: ``(windows, include_padding)``; how many elements each window counts.
        maximum: ``(ctx, x, windows)``; each window's greatest element, and its flat position in
            the pooled dimensions.
        maximum_gradient: ``(ctx, grad, indices, x, windows)``.
        average: ``(ctx, x, windows, by)``; each window's sum over its divisor.
        average_gradient: ``(ctx, grad, x, windows, by)``.
    """

    regular: Callable[..., W]
    adaptive: Callable[[int, int], W]
    divisors: Callable[[Sequence[W], bool], Array]
    maximum: Rule
    maximum_gradient: Rule
    average: Rule
    average_gradient: Rule

    def register(self, rule: Register) -> None:
        """Give every overload its rule."""
        for dims in (2, 3):
            for maximum, average, windows in (
                (f"max_pool{dims}d_with_indices", f"avg_pool{dims}d", self._regular),
                (f"adaptive_max_pool{dims}d", f"_adaptive_avg_pool{dims}d", self._parts),
            ):
                rule(maximum)(self._maximum(dims, windows))
                rule(f"{maximum}_backward")(self._maximum_gradient(dims, windows))
                rule(average)(self._average(dims, windows))
                rule(f"{average}_backward")(self._average_gradient(dims, windows))

    def _regular(self, x: Array, out: Shape, *attributes: Any) -> Sequence[W]:
        """Windows that make the last dimensions ``out``; attributes of length one are repeated."""
        kernel, stride, padding, dilation = (*attributes[:3], *(attributes[3:4] or ((1,),)))
        lists = (kernel, stride or kernel, padding, dilation)
        each = (tuple(value) * len(out) if len(value) == 1 else value for value in lists)
        sizes = zip(x.shape[-len(out) :], out, *each, strict=True)
        return [self.regular(*numbers) for numbers in sizes]

    def _parts(self, x: Array, out: Shape, *_attributes: Any) -> Sequence[W]:
        """Windows that cut the last dimensions into ``out`` equal parts."""
        sizes = zip(x.shape[-len(out) :], out, strict=True)
        return [self.adaptive(size, parts) for size, parts in sizes]

    def _maximum(self, dims: int, windows: Callable[..., Sequence[W]]) -> Rule:
        @functools.wraps(self.maximum)
        def rule(ctx: Operation[A], x: A, *attributes: Any) -> Result:
            return self.maximum(ctx, x, windows(x, ctx.out[0].shape[-dims:], *attributes))

        return rule

    def _maximum_gradient(self, dims: int, windows: Callable[..., Sequence[W]]) -> Rule:
        @functools.wraps(self.maximum_gradient)
        def rule(ctx: Operation[A], grad: A, x: A, *attributes: Any) -> Result:
            *sizes, indices = attributes
            found = windows(x, grad.shape[-dims:], *sizes)
            return self.maximum_gradient(ctx, ctx.widened(grad), indices, x, found)

        return rule

    def _average(self, dims: int, windows: Callable[..., Sequence[W]]) -> Rule:
        @functools.wraps(self.average)
        def rule(ctx: Operation[A], x: A, *attributes: Any) -> Result:
            found = windows(x, ctx.out[0].shape[-dims:], *attributes[:3])
            return self.average(ctx, ctx.widened(x), found, self._divisors(found, attributes))

        return rule

    def _average_gradient(self, dims: int, windows: Callable[..., Sequence[W]]) -> Rule:
        @functools.wraps(self.average_gradient)
        def rule(ctx: Operation[A], grad: A, x: A, *attributes: Any) -> Result:
            found = windows(x, grad.shape[-dims:], *attributes[:3])
            by = self._divisors(found, attributes)
            return self.average_gradient(ctx, ctx.widened(grad), x, found, by)

        return rule

    def _divisors(self, windows: Sequence[W], attributes: Sequence[Any]) -> Array | int:
        """What sums are divided by: after the windows' sizes an average's attributes say it."""
        _ceil_mode, count_include_pad, override = attributes[3:] or (False, False, None)
        return self.divisors(windows, count_include_pad) if override is None else override
