"""Unique elements, rows and runs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fuse.device.composites.registry import whole


def _empty(like: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.int64, device=like.device)


def _ranks(keys: Tensor) -> Tensor:
    """Dense ranks of every column's values, from 0.

    ``keys`` is (n, m). Equal values have equal ranks; a NaN differs from everything, itself
    included, as it does for PyTorch's CPU kernel.
    """
    values, order = keys.sort(dim=0, stable=True)
    first = torch.zeros_like(values[:1], dtype=torch.bool)
    steps = torch.cat([first, values[1:] != values[:-1]]).cumsum(0)
    return torch.zeros_like(steps).scatter(0, order, steps)


def _row_ranks(rows: Tensor) -> Tensor:
    """Dense lexicographic ranks of the rows of ``rows`` (n, m): about log2(m) sorts."""
    ranks = _ranks(rows)
    while ranks.shape[1] > 1:
        odd = ranks[:, -1:] if ranks.shape[1] % 2 else ranks[:, :0]
        even = ranks[:, : ranks.shape[1] - odd.shape[1]]
        pairs = _ranks(even[:, 0::2] * rows.shape[0] + even[:, 1::2])
        ranks = torch.cat([pairs, odd], 1)
    return ranks[:, 0]


def _representatives(ranks: Tensor, count: int) -> Tensor:
    """For each rank, the first position that has it."""
    positions = torch.arange(ranks.numel(), device=ranks.device)
    found = torch.full((count,), ranks.numel(), dtype=torch.int64, device=ranks.device)
    return found.scatter_reduce(0, ranks, positions, "amin")


def _counts(ranks: Tensor, count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.int64, device=ranks.device).scatter_add(
        0, ranks, torch.ones_like(ranks)
    )


def _of_elements(
    self: Tensor, ranked: Callable[[Tensor], Tensor], return_inverse: bool, return_counts: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Values, their places and counts: ``ranked`` numbers (n, 1) elements, equal ones alike."""
    flat = self.reshape(-1)
    if flat.numel() == 0:
        inverse = torch.empty(self.shape, dtype=torch.int64, device=self.device)
        return flat.clone(), inverse if return_inverse else _empty(self), _empty(self)
    ranks = ranked(flat[:, None])
    count = int(ranks.amax()) + 1
    return (
        flat.index_select(0, _representatives(ranks, count)),
        ranks.reshape(self.shape) if return_inverse else _empty(self),
        _counts(ranks, count) if return_counts else _empty(self),
    )


@whole("_unique2")
def _unique2(
    self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    # Sorted whether asked to or not: any order is allowed then.
    return _of_elements(self, _row_ranks, return_inverse, return_counts)


@whole("_unique")
def _unique(
    self: Tensor, sorted: bool = True, return_inverse: bool = False
) -> tuple[Tensor, Tensor]:
    values, inverse, _ = _unique2(self, sorted, return_inverse)
    return values, inverse


def _rows_of(self: Tensor, dim: int) -> Tensor | None:
    """Dimension ``dim`` as rows of everything else; ``None`` where there is nothing.

    Raises PyTorch's error where another dimension has size 0.
    """
    if self.numel():
        return self.movedim(dim, 0).reshape(self.shape[dim], -1)
    if self.shape[dim] != 0:
        raise RuntimeError(
            "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
        )
    if list(self.shape).count(0) != 1:
        raise RuntimeError("Number of zero sized dimensions is more than one, so unique "
                           "cannot be applied ")  # fmt: skip
    return None


def _of_rows(
    self: Tensor, dim: int, ranked: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Slices, their places and counts; in memory the dimension is first, as the CPU leaves it."""
    rows = _rows_of(self, dim)
    if rows is None:
        return self.clone(), _empty(self), _empty(self)
    ranks = ranked(rows)
    count = int(ranks.amax()) + 1
    places = _representatives(ranks, count)
    values = self.movedim(dim, 0).index_select(0, places).movedim(0, dim)
    return values, ranks, _counts(ranks, count)


@whole("unique_dim")
def _unique_dim(
    self: Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    return _of_rows(self, dim, _row_ranks)


def _runs(rows: Tensor) -> Tensor:
    """The number of each row's run of equal rows, from 0."""
    changes = (rows[1:] != rows[:-1]).any(1)
    return torch.cat([torch.zeros_like(changes[:1]) if len(changes) else changes.new_zeros(1),
                      changes]).cumsum(0)  # fmt: skip


@whole("unique_dim_consecutive")
def _unique_dim_consecutive(
    self: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    return _of_rows(self, dim, _runs)


@whole("unique_consecutive")
def _unique_consecutive(
    self: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    if dim is not None and not (self.dim() == 1 and dim in (0, -1)):
        found: tuple[Tensor, Tensor, Tensor] = _unique_dim_consecutive(
            self, dim, return_inverse, return_counts
        )
        return found
    return _of_elements(self, _runs, return_inverse, return_counts)
