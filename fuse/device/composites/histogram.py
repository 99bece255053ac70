"""Histograms in one or more dimensions.

A bin is found by comparing with its edges, as the CPU's kernel does at last (its linear guess
is corrected by a local search); the last bin includes its right edge.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fuse.device.composites.registry import whole


def _outer_edges(points: Tensor, range: Sequence[float] | None) -> list[tuple[Tensor, Tensor]]:
    """Leftmost and rightmost edge of every dimension, as 0-d tensors."""
    count = points.shape[1]
    if range is not None:
        if len(range) != 2 * count:
            raise RuntimeError(
                f"torch.histogramdd: for a {count}-dimensional histogram range "
                f"should have {2 * count} elements, but got {len(range)}"
            )
        given = torch.tensor(range, dtype=points.dtype).reshape(count, 2)
        if not bool((given[:, 0] <= given[:, 1]).all()):
            raise RuntimeError("torch.histogramdd: min should not exceed max")
        low, high = given.to(points.device).unbind(1)
    elif points.shape[0]:
        low, high = torch.aminmax(points, dim=0)
    else:
        low, high = points.new_zeros(count), points.new_ones(count)
    same = low == high
    low, high = torch.where(same, low - 0.5, low), torch.where(same, high + 0.5, high)
    return list(zip(low.unbind(), high.unbind(), strict=True))


def _edges(points: Tensor, bins: Sequence[int], range: Sequence[float] | None) -> list[Tensor]:
    made = []
    for count, (low, high) in zip(bins, _outer_edges(points, range), strict=True):
        if count <= 0:
            raise RuntimeError("torch.histogramdd(): bins must be > 0")
        # From both ends, as torch.linspace does, so that the ends are exact.
        steps = torch.arange(count + 1, dtype=points.dtype, device=points.device)
        width = (high - low) / count
        made.append(torch.where(steps <= count // 2, low + width * steps,
                                high - width * (count - steps)))  # fmt: skip
    return made


def _check(points: Tensor, bins: int, weight: Tensor | None) -> None:
    if points.dim() < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    if points.shape[-1] != bins:
        raise RuntimeError(f"torch.histogramdd: expected {points.shape[-1]} sequences of bin "
                           f"edges for a {points.shape[-1]}-dimensional histogram but got "
                           f"{bins}")  # fmt: skip
    if weight is not None and weight.shape != points.shape[:-1]:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the "
            "same shape as the input tensor excluding its innermost dimension"
        )
    if weight is not None and weight.dtype != points.dtype:
        raise RuntimeError("torch.histogramdd: if weight tensor is provided, input tensor and "
                           "weight tensor should have the same dtype")  # fmt: skip


def _fill(points: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """The histogram of ``points`` (n, d) over ``edges``."""
    place = torch.zeros(points.shape[0], dtype=torch.int64, device=points.device)
    inside = torch.ones_like(place, dtype=torch.bool)
    for values, bounds in zip(points.unbind(1), edges, strict=True):
        count = bounds.numel() - 1
        found = torch.searchsorted(bounds, values.contiguous(), right=True) - 1
        found = torch.where(values == bounds[-1], count - 1, found)
        inside = inside & (values >= bounds[0]) & (values <= bounds[-1])
        place = place * count + found.clamp(0, max(count - 1, 0))
    shape = [bounds.numel() - 1 for bounds in edges]
    total = torch.Size(shape).numel()
    amount = torch.ones_like(points[:, 0]) if weight is None else weight.reshape(-1)
    amount = torch.where(inside, amount, 0)
    hist = points.new_zeros(total).scatter_add(0, place, amount).reshape(shape)
    if density:
        hist = hist / hist.sum()
        for dim, bounds in enumerate(edges):
            sizes = [1] * len(shape)
            sizes[dim] = -1
            hist = hist / bounds.diff().reshape(sizes)
    return hist


@whole("_histogramdd_bin_edges")
def _bin_edges(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> list[Tensor]:
    _check(self, len(bins), weight)
    return _edges(self.reshape(-1, self.shape[-1]), bins, range)


@whole("_histogramdd_from_bin_cts")
def _from_counts(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Tensor:
    _check(self, len(bins), weight)
    points = self.reshape(-1, self.shape[-1])
    return _fill(points, _edges(points, bins, range), weight, density)


@whole("_histogramdd_from_bin_tensors")
def _from_edges(
    self: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    _check(self, len(bins), weight)
    _check_edges(self, bins)
    return _fill(self.reshape(-1, self.shape[-1]), bins, weight, density)


def _check_edges(self: Tensor, edges: Sequence[Tensor]) -> None:
    for bounds in edges:
        if bounds.dim() != 1:
            raise RuntimeError("torch.histogramdd: bins tensor should have one dimension")
        if bounds.numel() == 0:
            raise RuntimeError("torch.histogramdd: bins tensor should have at least 1 element")
        if bounds.dtype != self.dtype:
            raise RuntimeError("torch.histogramdd: input tensor and bins tensors should have "
                               "the same dtype")  # fmt: skip


@whole("histogram.bin_ct")
def _histogram_counts(
    self: Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    points = self.reshape(-1, 1)
    weight = None if weight is None else weight.reshape(-1)
    _check(points, 1, weight)
    edges = _edges(points, [bins], range)
    return _fill(points, edges, weight, density), edges[0]


@whole("histogram.bins_tensor")
def _histogram_edges(
    self: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    points = self.reshape(-1, 1)
    weight = None if weight is None else weight.reshape(-1)
    _check(points, 1, weight)
    _check_edges(points, [bins])
    return _fill(points, [bins], weight, density), bins.clone()
