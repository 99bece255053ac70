"""Reductions' arguments for every backend: which axes are meant, and the overloads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from fuse.backends.context import A, Array, Operation, Register, Result, Rule

Dims = tuple[int, ...] | int | None
Shaped = Callable[..., Array]
"""Gives a result the shape of the ``ctx``'s result number ``at``: ``(ctx, value, at=0)``."""


def axes_of(dim: Dims, rank: int) -> tuple[int, ...]:
    """Non-negative axes of an ATen ``dim`` argument; ``None`` and ``()`` mean every axis."""
    if rank == 0:
        return ()
    if dim is None or dim == ():
        return tuple(range(rank))
    dims = (dim,) if isinstance(dim, int) else dim
    return tuple(sorted(d % rank for d in dims))


def truth_axes(dim: Dims, rank: int) -> tuple[int, ...]:
    """The same of ``any`` and ``all``, whose ``dims`` alone read ``()`` as no axis."""
    return () if dim == () else axes_of(dim, rank)


def at_least_1d(x: A) -> A:
    """A scalar as one element, so that ``dim=0`` and ``dim=-1`` name an axis."""
    return x.reshape((1,)) if x.ndim == 0 else x


def register_extrema(
    rule: Register, extrema: Mapping[str, Rule], first_index: Rule, shaped: Shaped
) -> None:
    """Give the overloads of "max" and "min" their rules.

    ``extrema[name](x, axes)`` is the extremum, ``first_index(x, value, axis)`` where it is first.
    """
    for name, extremum in extrema.items():
        rule(f"arg{name}")(_arg_extremum(extremum, first_index, shaped))
        rule(name, f"a{name}")(_whole_extremum(extremum, shaped))
        rule(f"{name}.dim")(_indexed_extremum(extremum, first_index, shaped))

    @functools.wraps(first_index)
    def both(ctx: Operation[A], x: A, dim: Dims = None, keepdim: bool = False) -> Result:
        axes = axes_of(dim, x.ndim)
        smallest, largest = extrema["min"](x, axes), extrema["max"](x, axes)
        return shaped(ctx, smallest), shaped(ctx, largest, 1)

    rule("_aminmax", "_aminmax.dim", "aminmax")(both)


def _arg_extremum(extremum: Rule, first_index: Rule, shaped: Shaped) -> Rule:
    @functools.wraps(extremum)
    def rule(ctx: Operation[A], x: A, dim: int | None = None, keepdim: bool = False) -> Result:
        x = x.reshape((-1,)) if dim is None else at_least_1d(x)
        axis = 0 if dim is None else dim % x.ndim
        return shaped(ctx, first_index(x, extremum(x, (axis,)), axis))

    return rule


def _whole_extremum(extremum: Rule, shaped: Shaped) -> Rule:
    @functools.wraps(extremum)
    def rule(ctx: Operation[A], x: A, dim: Dims = None, keepdim: bool = False) -> Result:
        return shaped(ctx, extremum(x, axes_of(dim, x.ndim)))

    return rule


def _indexed_extremum(extremum: Rule, first_index: Rule, shaped: Shaped) -> Rule:
    @functools.wraps(extremum)
    def rule(ctx: Operation[A], x: A, dim: int, keepdim: bool = False) -> Result:
        x = at_least_1d(x)
        axis = dim % x.ndim
        value = extremum(x, (axis,))
        return shaped(ctx, value), shaped(ctx, first_index(x, value, axis), 1)

    return rule


def register_variances(
    rule: Register, variance: Callable[..., tuple[Array, Array]], root: Rule, shaped: Shaped
) -> None:
    """Make rules of ``variance(ctx, x, axes, correction)``, which returns variance and mean."""
    for name, of in (("var", None), ("std", root)):
        rule(f"{name}.correction")(_spread(variance, of, shaped, with_mean=False))
        rule(f"{name}_mean.correction")(_spread(variance, of, shaped, with_mean=True))


def _spread(
    variance: Callable[..., tuple[Array, Array]], root: Rule | None, shaped: Shaped, with_mean: bool
) -> Rule:
    @functools.wraps(variance)
    def rule(
        ctx: Operation[A],
        x: A,
        dim: Dims = None,
        *,
        correction: A | float | None = None,
        keepdim: bool = False,
    ) -> Result:
        correction = 1 if correction is None else correction
        spread, mean = variance(ctx, ctx.widened(x), axes_of(dim, x.ndim), correction)
        spread = shaped(ctx, spread if root is None else root(spread))
        return (spread, shaped(ctx, mean, 1)) if with_mean else spread

    return rule


def register_norms(rule: Register, norm: Rule) -> None:
    """Make rules of ``norm(ctx, x, order, axes, dtype)``; a ``dtype`` of ``None`` is the own."""

    @functools.wraps(norm)
    def of_dims(
        ctx: Operation[A],
        x: A,
        order: A | float | None = 2,
        dim: Dims = None,
        keepdim: bool = False,
        *,
        dtype: str | None = None,
    ) -> Result:
        return norm(ctx, x, 2 if order is None else order, axes_of(dim, x.ndim), dtype)

    @functools.wraps(norm)
    def of_difference(ctx: Operation[A], x: A, y: A, p: A | float = 2) -> Result:
        x, y = ctx.computed(x, y)
        return norm(ctx, x - y, p, axes_of(None, x.ndim), None)

    rule("linalg_vector_norm", "norm.Scalar", "norm.ScalarOpt_dim")(of_dims)
    rule("norm.ScalarOpt_dtype", "norm.ScalarOpt_dim_dtype")(of_dims)
    rule("dist")(of_difference)
