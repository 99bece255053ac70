"""A convolution's arguments, for the rules of every backend: its window, and its overloads.

What is computed of them is each backend's own.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from fuse.backends.context import A, Operation, Result, Rule


@dataclass(frozen=True)
class Window:
    """How a convolution's window moves, one entry a spatial dimension.

    ``output_padding`` only says which of several sizes a transposed result has.
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int

    @classmethod
    def of(
        cls,
        dims: int,
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
    ) -> Window:
        """Repeat attributes of length one for every spatial dimension."""
        lists = (
            tuple(value) * dims if len(value) == 1 else tuple(value)
            for value in (stride, padding, dilation, output_padding)
        )
        stride, padding, dilation, output_padding = lists
        return cls(stride, padding, dilation, transposed, output_padding, groups)


def forward(compute: Rule) -> Rule:
    """The rule of ``convolution``: ``compute(ctx, x, weight, bias, window)``."""

    @functools.wraps(compute)
    def rule(ctx: Operation[A], x: A, weight: A, bias: A | None, *attributes: Any) -> Result:
        return compute(ctx, x, weight, bias, Window.of(x.ndim - 2, *attributes))

    return rule


def backward(compute: Rule) -> Rule:
    """The rule of ``convolution_backward``: ``compute(ctx, grad, x, weight, window, mask)``.

    ``mask`` says which of the gradients of ``x``, ``weight`` and bias are wanted; the others are
    ``None``.
    """
    plain = backward_overrideable(compute)

    @functools.wraps(compute)
    def rule(
        ctx: Operation[A], grad: A, x: A, weight: A, bias_sizes: object, *attributes: Any
    ) -> Result:
        return plain(ctx, grad, x, weight, *attributes)

    return rule


def backward_overrideable(compute: Rule) -> Rule:
    """The same of ``convolution_backward_overrideable``, which is not told the bias's sizes."""

    @functools.wraps(compute)
    def rule(ctx: Operation[A], grad: A, x: A, weight: A, *attributes: Any) -> Result:
        *window, mask = attributes
        return compute(ctx, grad, x, weight, Window.of(x.ndim - 2, *window), mask)

    return rule
