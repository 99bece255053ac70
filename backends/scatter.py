"""Scatters' overloads for every backend, and what of their arguments no rule takes."""

from __future__ import annotations

import functools
from typing import Any

from fuse.backends.context import A, Operation, Register, Result, Rule, Scalar


def refuse_sparse(*arguments: Any) -> str | None:
    """Why a gradient is not covered, or ``None``; of the rule's own arguments."""
    return "a sparse gradient" if arguments[-1] else None


def register_scatter(rule: Register, scattered: Rule, indexed: Rule, filled: Rule) -> None:
    """Give every overload its rule.

    Of ``(ctx, self, dim, index, src, reduce, include_self)``, ``scattered`` writes or reduces
    ``src`` at the elements that ``index`` names, ``indexed`` reduces it into whole rows.
    ``filled(self, index, value)`` is a ``src`` of one number.
    """

    @functools.wraps(scattered)
    def of_tensor(
        ctx: Operation[A], self: A, dim: int, index: A, src: A, *, reduce: str | None = None
    ) -> Result:
        return scattered(ctx, self, dim, index, src, reduce, True)

    @functools.wraps(scattered)
    def of_value(
        ctx: Operation[A],
        self: A,
        dim: int,
        index: A,
        value: A | Scalar,
        *,
        reduce: str | None = None,
    ) -> Result:
        return scattered(ctx, self, dim, index, filled(self, index, value), reduce, True)

    @functools.wraps(scattered)
    def added(ctx: Operation[A], self: A, dim: int, index: A, src: A) -> Result:
        return scattered(ctx, self, dim, index, src, "sum", True)

    def including(reduced: Rule) -> Rule:
        @functools.wraps(reduced)
        def of_rows(
            ctx: Operation[A],
            self: A,
            dim: int,
            index: A,
            src: A,
            reduce: str,
            *,
            include_self: bool,
        ) -> Result:
            return reduced(ctx, self, dim, index, src, reduce, include_self)

        return of_rows

    rule("scatter.src", "scatter.reduce")(of_tensor)
    rule("scatter.value", "scatter.value_reduce")(of_value)
    rule("scatter_add")(added)
    rule("scatter_reduce.two")(including(scattered))
    rule("index_reduce")(including(indexed))
