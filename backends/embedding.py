"""What of an embedding's arguments no backend's rules take, and overloads that are others.

A bag is a sum, a mean or a maximum of rows of the table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

Rule = Callable[..., Any]

SUM, MEAN, MAX = 0, 1, 2
"""The modes of a bag (EmbeddingBagMode of ATen/native/EmbeddingBag.h)."""
_SPARSE: Final = "a sparse gradient"
_SCALED_BAG: Final = "scale_grad_by_freq of an embedding bag"


def refuse_sparse(*arguments: Any) -> str | None:
    """Why ``embedding_backward`` is not covered, or ``None``; of the rule's own arguments."""
    return _SPARSE if arguments[-1] else None


def refuse_bag_backward(*arguments: Any) -> str | None:
    """The same of ``_embedding_bag_backward``."""
    scaled, mode, sparse = arguments[8:11]
    return _SPARSE if sparse else _refuse_scaled(mode, scaled)


def refuse_dense_bag_backward(*arguments: Any) -> str | None:
    """The same of ``_embedding_bag_dense_backward``."""
    scaled, mode = arguments[7:9]
    return _refuse_scaled(mode, scaled)


def _refuse_scaled(mode: int, scaled: bool) -> str | None:
    """PyTorch's CPU kernel scales by the count of another index than the row's own.

    It reads ``counts[indices_data[i]]`` in EmbeddingBag.cpp, where i numbers distinct rows.
    """
    return _SCALED_BAG if scaled and mode != MAX else None


def backward(dense: Rule) -> Rule:
    """The rule of ``embedding_backward``, which may ask for a sparse gradient: the dense one's."""

    @functools.wraps(dense)
    def rule(ctx: Any, *arguments: Any) -> Any:
        return dense(ctx, *arguments[:-1])

    return rule


def bag_backward(dense: Rule, bag_list: Rule) -> Rule:
    """The rule of ``_embedding_bag_backward``: that of the dense one.

    ``bag_list(offset2bag, offsets, indices)`` is ``offset2bag``, where the forward left it empty
    computed.
    """

    @functools.wraps(dense)
    def rule(
        ctx: Any,
        grad: Any,
        indices: Any,
        offsets: Any,
        offset2bag: Any,
        bag_size: Any,
        maximum_indices: Any,
        num_weights: int,
        scale_grad_by_freq: bool,
        mode: int,
        sparse: bool,
        *rest: Any,
    ) -> Any:
        bag = bag_list(offset2bag, offsets, indices)
        sizes = (bag_size, maximum_indices, num_weights)
        return dense(ctx, grad, indices, bag, *sizes, scale_grad_by_freq, mode, *rest)

    return rule
