"""Searches in sorted sequences: their overloads' arguments, for every backend."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]


def register_search(
    rule: Callable[..., Callable[[Rule], Rule]], search: Rule, take: Callable[[Any, Any], Any]
) -> None:
    """Make rules of ``search(sequence, values, right)``.

    ``take(sequence, sorter)`` is an unsorted sequence in the order that ``sorter`` says.
    """

    @functools.wraps(search)
    def searchsorted(
        ctx: Any,
        sequence: Any,
        values: Any,
        *,
        out_int32: bool = False,
        right: bool = False,
        side: str | None = None,
        sorter: Any = None,
    ) -> Any:
        if sorter is not None:
            sequence = take(sequence, sorter)
        sequence, values = ctx.promoted(sequence, values)
        return search(sequence, values, right or side == "right")

    @functools.wraps(search)
    def bucketize(
        ctx: Any, x: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False
    ) -> Any:
        boundaries, x = ctx.promoted(boundaries, x)
        return search(boundaries, x, right)

    rule("searchsorted.Tensor", "searchsorted.Scalar")(searchsorted)
    rule("bucketize.Tensor", "bucketize.Scalar")(bucketize)
