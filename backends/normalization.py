"""Normalisations' arguments for every backend: axes, shapes, and overloads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fuse.backends.context import A, Operation, Register, Result

Axes = tuple[int, ...]
Mask = tuple[bool, ...]


def wide(ctx: Operation[A], first: A, *others: A | None) -> list[Any]:
    """Operands in the dtype statistics are computed in: that of the first, half widened."""
    dtype = ctx.widened(first).dtype
    return [None if value is None else value.astype(dtype) for value in (first, *others)]


def split(rank: int, normalized: tuple[int, ...]) -> tuple[Axes, Axes]:
    """Axes outside and inside ``normalized_shape``, of an input with ``rank`` dimensions."""
    first = rank - len(normalized)
    return tuple(range(first)), tuple(range(first, rank))


def axes_but(rank: int, dim: int) -> Axes:
    """All axes but one, which may be counted from the end."""
    return tuple(axis for axis in range(rank) if axis != dim % rank)


def channel_axes(rank: int) -> Axes:
    """All axes but that of the channels."""
    return axes_but(rank, 1)


def beside(parameter: A, rank: int) -> A:
    """[C] reshaped to broadcast along dimension 1 of an input with ``rank`` dimensions."""
    return parameter.reshape((1, parameter.size) + (1,) * (rank - 2))


def register_group_norm(
    rule: Register,
    normalise: Callable[..., tuple[A, A, A]],
    gradients: Callable[..., Sequence[A | None]],
) -> None:
    """Make rules of group normalisation, the input seen as [N, group, C / group, HxW].

    ``normalise(x, weight, bias, axes, eps)`` returns output, mean and reciprocal deviation over
    ``axes``; ``gradients(grad, x, mean, rstd, weight, axes, other_axes, mask)`` those of input,
    weight and bias that ``mask`` asks for.
    """

    def by_channel(parameter: A | None, group: int) -> A | None:
        if parameter is None:
            return None
        return parameter.reshape((1, group, parameter.size // group, 1))

    @functools.wraps(normalise)
    def forward(
        ctx: Operation[A],
        x: A,
        weight: A | None,
        bias: A | None,
        n: int,
        c: int,
        pixels: int,
        group: int,
        eps: A | float,
    ) -> Result:
        shape = x.shape
        x, weight, bias = wide(ctx, x, weight, bias)
        weight, bias = by_channel(weight, group), by_channel(bias, group)
        x = x.reshape((n, group, c // group, pixels))
        out, mean, rstd = normalise(x, weight, bias, (2, 3), eps)
        return out.reshape(shape), mean.reshape((n, group)), rstd.reshape((n, group))

    @functools.wraps(gradients)
    def backward(
        ctx: Operation[A], grad: A, x: A, mean: A, rstd: A, weight: A | None, *sizes: Any
    ) -> Result:
        n, c, pixels, group, mask = sizes
        shape = x.shape
        grad, x, mean, rstd, weight = wide(ctx, grad, x, mean, rstd, weight)
        grad, x = (value.reshape((n, group, c // group, pixels)) for value in (grad, x))
        mean, rstd = (value.reshape((n, group, 1, 1)) for value in (mean, rstd))
        weight = by_channel(weight, group)
        made = gradients(grad, x, mean, rstd, weight, (2, 3), (0, 3), mask)
        shapes = (shape, (c,), (c,))
        return [None if g is None else g.reshape(to) for g, to in zip(made, shapes, strict=True)]

    rule("native_group_norm")(forward)
    rule("native_group_norm_backward")(backward)


def register_batch_norm(rule: Register, compute: Callable[..., tuple[A | None, ...]]) -> None:
    """Make ``compute`` the rule of every overload of batch normalisation, forward.

    ``compute(ctx, x, weight, bias, running_mean, running_var, training, momentum, eps)`` returns
    the output, the saved mean and reciprocal deviation, an empty reserve, and the new running mean
    and variance (``None`` where there are none). ``native_batch_norm`` writes its arguments 3 and 4
    when it trains though its schema does not say so: ``fuse.trace.operators`` tells the engine
    which.
    """

    @functools.wraps(compute)
    def with_statistics(*arguments: Any) -> Result:
        out, mean, rstd, _, *moved = compute(*arguments)
        return out, mean, rstd, *moved

    @functools.wraps(compute)
    def with_update(
        ctx: Operation[A], x: A, w: A | None, b: A | None, mean: A | None, var: A | None, *rest: Any
    ) -> Result:
        return compute(ctx, x, w, b, mean, var, True, *rest)

    @functools.wraps(compute)
    def without_statistics(
        ctx: Operation[A],
        x: A,
        w: A | None,
        b: A | None,
        training: bool,
        momentum: A | float,
        eps: A | float,
    ) -> Result:
        # Without running statistics there is nothing but the batch's own to normalise with.
        return compute(ctx, x, w, b, None, None, True, momentum, eps)[:3]

    @functools.wraps(compute)
    def inference(
        ctx: Operation[A], x: A, w: A | None, b: A | None, mean: A | None, var: A | None, *rest: Any
    ) -> Result:
        return compute(ctx, x, w, b, mean, var, False, *rest)[:3]

    functional = "_native_batch_norm_legit_functional"
    rule("native_batch_norm", "_native_batch_norm_legit", functional)(with_statistics)
    rule("_batch_norm_with_update", "_batch_norm_with_update_functional")(with_update)
    rule("_native_batch_norm_legit.no_stats")(without_statistics)
    rule("_native_batch_norm_legit_no_training")(inference)
