"""Matrix products' overloads for every backend: scaled additions, and scales of 8-bit floats."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fuse.backends.context import A, Operation, Register, Result, Rule, Scalar

_TENSOR_WISE, _ROW_WISE = 0, 1  # torch.nn.functional.ScalingType


def added(product: Callable[..., A], add: Callable[..., A]) -> Callable[..., A]:
    """The rule of ``add(ctx, base, product(ctx, x, y), beta, alpha)``, its dtype named or not."""

    @functools.wraps(product)
    def rule(
        ctx: Operation[A],
        base: A,
        x: A,
        y: A,
        *_dtype: str,
        beta: A | Scalar = 1,
        alpha: A | Scalar = 1,
    ) -> A:
        return add(ctx, base, product(ctx, x, y), beta, alpha)

    return rule


def register_scaled(rule: Register, product: Rule) -> None:
    """Make ``product(ctx, x, y, (x scale, y scale), bias)`` the rule of 8-bit floats' products."""

    @functools.wraps(product)
    def scaled(
        ctx: Operation[A],
        x: A,
        y: A,
        scale_a: A,
        scale_b: A,
        bias: A | None = None,
        *_options: object,
    ) -> Result:
        return product(ctx, x, y, (scale_a, scale_b), bias)

    @functools.wraps(product)
    def by_recipe(ctx: Operation[A], x: A, y: A, *arguments: Any) -> Result:
        scale_a, _, _, scale_b, _, _, bias = (*arguments, None)[:7]
        return product(ctx, x, y, (scale_a[0], scale_b[0]), bias)

    rule("_scaled_mm")(scaled)
    rule("_scaled_mm_v2", refuse=_refuse_blocks)(by_recipe)


def _refuse_blocks(ctx: Operation[A], x: A, y: A, *arguments: Any) -> str | None:
    _, recipe_a, _, _, recipe_b, *_ = arguments
    known = {*recipe_a, *recipe_b} <= {_TENSOR_WISE, _ROW_WISE}
    return None if known else "scales of blocks of a matrix"


def trilinear(compute: Rule) -> Rule:
    """The rule of ``_trilinear``: a product of three tensors, expanded, summed over ``dims``.

    ``compute(ctx, operands, equation, expanded, dims)``: ``equation`` is ``einsum``'s, ``expanded``
    the dimensions that each operand lacks.
    """

    @functools.wraps(compute)
    def rule(ctx: Operation[A], a: A, b: A, c: A, *attributes: Any) -> Result:
        *expanded, dims = attributes[:4]
        rank = a.ndim + len(expanded[0])
        names = [_letters(rank, without) for without in expanded]
        equation = f"{','.join(names)}->{_letters(rank, dims)}"
        operands = [ctx.widened(operand) for operand in (a, b, c)]
        return compute(ctx, operands, equation, expanded, dims)

    return rule


def _letters(rank: int, without: Sequence[int]) -> str:
    return "".join(chr(97 + axis) for axis in range(rank) if axis not in without)
