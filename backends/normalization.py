"""The axes and shapes of normalisations, and batch normalisation's overloads, for every backend."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Axes = tuple[int, ...]
Mask = tuple[bool, ...]
Rule = Callable[..., Any]


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


def beside(parameter: Any, rank: int) -> Any:
    """[C] reshaped to broadcast along dimension 1 of an input with ``rank`` dimensions."""
    return parameter.reshape((1, parameter.size) + (1,) * (rank - 2))


def by_channel(parameter: Any, group: int) -> Any:
    """[C] as [1, group, C / group, 1], beside an input seen as [N, group, C / group, HxW]."""
    return parameter.reshape(1, group, parameter.size // group, 1)


def register_batch_norm(rule: Callable[..., Callable[[Rule], Rule]], compute: Rule) -> None:
    """Make ``compute`` the rule of every overload of batch normalisation, forward.

    ``compute(ctx, x, weight, bias, running_mean, running_var, training, momentum, eps)`` returns
    the output, the saved mean and reciprocal deviation, an empty reserve, and the new running mean
    and variance (``None`` where there are none). ``native_batch_norm`` writes its arguments 3 and 4
    when it trains though its schema does not say so: ``fuse.trace.hidden_writes`` tells the engine
    which.
    """

    @functools.wraps(compute)
    def with_statistics(*arguments: Any) -> Any:
        out, mean, rstd, _, *moved = compute(*arguments)
        return out, mean, rstd, *moved

    @functools.wraps(compute)
    def with_update(ctx: Any, x: Any, w: Any, b: Any, mean: Any, var: Any, *rest: Any) -> Any:
        return compute(ctx, x, w, b, mean, var, True, *rest)

    @functools.wraps(compute)
    def without_statistics(
        ctx: Any, x: Any, w: Any, b: Any, training: bool, momentum: Any, eps: Any
    ) -> Any:
        # Without running statistics there is nothing but the batch's own to normalise with.
        return compute(ctx, x, w, b, None, None, True, momentum, eps)[:3]

    @functools.wraps(compute)
    def inference(ctx: Any, x: Any, w: Any, b: Any, mean: Any, var: Any, *rest: Any) -> Any:
        return compute(ctx, x, w, b, mean, var, False, *rest)[:3]

    functional = "_native_batch_norm_legit_functional"
    rule("native_batch_norm", "_native_batch_norm_legit", functional)(with_statistics)
    rule("_batch_norm_with_update", "_batch_norm_with_update_functional")(with_update)
    rule("_native_batch_norm_legit.no_stats")(without_statistics)
    rule("_native_batch_norm_legit_no_training")(inference)
