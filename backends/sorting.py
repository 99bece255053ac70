"""Searches in sorted sequences: their overloads' arguments, for every backend."""

from __future__ import annotations

import functools
from collections.abc import Callable

from fuse.backends.context import A, Operation, Register, Result, Rule


def register_search(rule: Register, search: Rule, take: Callable[[A, A], A]) -> None:
    """Make rules of ``search(sequence, values, right)``.

    ``take(sequence, sorter)`` is an unsorted sequence in the order that ``sorter`` says.
    """

    @functools.wraps(search)
    def searchsorted(
        ctx: Operation[A],
        sequence: A,
        values: A,
        *,
        out_int32: bool = False,
        right: bool = False,
        side: str | None = None,
        sorter: A | None = None,
    ) -> Result:
        if sorter is not None:
            sequence = take(sequence, sorter)
        sequence, values = ctx.promoted(sequence, values)
        return search(sequence, values, right or side == "right")

    @functools.wraps(search)
    def bucketize(
        ctx: Operation[A], x: A, boundaries: A, *, out_int32: bool = False, right: bool = False
    ) -> Result:
        boundaries, x = ctx.promoted(boundaries, x)
        return search(boundaries, x, right)

    rule("searchsorted.Tensor", "searchsorted.Scalar")(searchsorted)
    rule("bucketize.Tensor", "bucketize.Scalar")(bucketize)
