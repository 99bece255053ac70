"""An embedding's overloads for every backend, and what of their arguments no rule takes.

A bag is a sum, a mean or a maximum of rows of the table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic

from fuse.backends.context import A, Array, Operation, Register, Result, Rule
from fuse.backends.scatter import refuse_sparse

SUM, MEAN, MAX = 0, 1, 2
"""The modes of a bag (EmbeddingBagMode of ATen/native/EmbeddingBag.h)."""
_SCALED_BAG: Final = "scale_grad_by_freq of an embedding bag"


@dataclass(frozen=True)
class Bags(Generic[A]):
    """How the rows of each bag are reduced.

    Attributes:
        mode: ``SUM``, ``MEAN`` or ``MAX``.
        weights: a factor for each index, or ``None``.
        padding: the index whose row counts for nothing.
    """

    mode: int
    weights: A | None
    padding: int


@dataclass(frozen=True)
class Embedding:
    """A backend's arithmetic, and ``register``, which makes rules of it.

    Attributes:
        gradient: ``(ctx, grad, indices, padding_idx, by_frequency)``; of a table's rows.
        bag_of: ``(offsets, count)``; the bag of each of ``count`` indices.
        bags: ``(ctx, weight, indices, offsets, bags)``; each bag's result, each index's bag, the
            bags' sizes, and the rows that maxima came from.
        bags_gradient: ``(ctx, grad, indices, bag, sizes, maximum_indices, bags)``; of the rows.
        weights_gradient: ``(ctx, grad, weight, indices, bag, padding_idx)``; of ``Bags.weights``.
    """

    gradient: Rule
    bag_of: Callable[..., Array]
    bags: Rule
    bags_gradient: Rule
    weights_gradient: Rule

    def register(self, rule: Register) -> None:
        """Give every overload its rule."""
        gradient = self._gradient()
        rule("embedding_dense_backward")(gradient)
        rule("embedding_backward", refuse=refuse_sparse)(gradient)
        rule("_embedding_bag", "_embedding_bag_forward_only")(self._bags())
        rule("_embedding_bag_dense_backward", refuse=_refuse_scaled)(self._bags_gradient())
        rule("_embedding_bag_per_sample_weights_backward")(self._weights_gradient())

    def _gradient(self) -> Rule:
        @functools.wraps(self.gradient)
        def rule(
            ctx: Operation[A],
            grad: A,
            indices: A,
            _rows: int,
            padding: int,
            scaled: bool,
            *_sparse: bool,
        ) -> Result:
            return self.gradient(ctx, ctx.widened(grad), indices, padding, scaled)

        return rule

    def _bags(self) -> Rule:
        @functools.wraps(self.bags)
        def rule(ctx: Operation[A], weight: A, indices: A, offsets: A, *attributes: Any) -> Result:
            _scaled, mode, _sparse, weights, include_last_offset, padding = attributes
            offsets = offsets[:-1] if include_last_offset else offsets
            return self.bags(ctx, weight, indices, offsets, Bags(mode, weights, padding))

        return rule

    def _bags_gradient(self) -> Rule:
        @functools.wraps(self.bags_gradient)
        def rule(
            ctx: Operation[A], grad: A, indices: A, bag: A, sizes: A, maxima: A, *attributes: Any
        ) -> Result:
            _rows, _scaled, mode, weights, padding = attributes
            grad, bags = ctx.widened(grad), Bags(mode, weights, padding)
            sizes = sizes[: grad.shape[0]]
            return self.bags_gradient(ctx, grad, indices, bag, sizes, maxima, bags)

        return rule

    def _weights_gradient(self) -> Rule:
        @functools.wraps(self.weights_gradient)
        def rule(
            ctx: Operation[A], grad: A, weight: A, indices: A, offsets: A, *attributes: Any
        ) -> Result:
            offset2bag, _mode, padding = attributes
            bag = self._known(offset2bag, offsets, indices)
            return self.weights_gradient(ctx, grad, weight, indices, bag, padding)

        return rule

    def _known(self, offset2bag: Array, offsets: Array, indices: Array) -> Array:
        """``offset2bag``, where the forward left it empty computed."""
        return offset2bag if offset2bag.size else self.bag_of(offsets, indices.size)


def _refuse_scaled(*arguments: Any) -> str | None:
    """PyTorch's CPU kernel scales by the count of another index than the row's own.

    It reads ``counts[indices_data[i]]`` in EmbeddingBag.cpp, where i numbers distinct rows.
    """
    scaled, mode = arguments[7:9]
    return _SCALED_BAG if scaled and mode != MAX else None
