"""Reductions of consecutive segments along one dimension, and their gradient."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from fuse.device.composites.registry import whole

_SHORT: Final = {"amax": "max", "amin": "min"}
"""PyTorch takes both names (get_reduction_enum of ATen/native/ReductionType.h)."""
_START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "min": float("inf"), "max": float("-inf")}
_REDUCE = {"sum": "sum", "mean": "sum", "prod": "prod", "min": "amin", "max": "amax"}


def segment_of_each(ends: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The segment of each of ``size`` positions, int64, and the positions, both (..., size).

    ``ends`` (..., segments), ascending integers, says where each segment ends. What lies behind the
    last has the number of segments.
    """
    places = torch.arange(size, dtype=ends.dtype, device=ends.device)
    places = places.expand(*ends.shape[:-1], size).contiguous()
    return torch.searchsorted(ends.contiguous(), places, right=True), places


def _members(ends: Tensor, size: int, start: Tensor) -> tuple[Tensor, Tensor]:
    """Each position's segment, and whether it has one."""
    segment, places = segment_of_each(ends, size)
    inside = (segment < ends.shape[-1]) & (places >= start)
    return segment.clamp(max=max(ends.shape[-1] - 1, 0)), inside


def _layout(
    data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Segment and membership of every element of ``data``, and the segments' lengths."""
    # Where each segment ends, along the last dimension; the others are those before ``axis``.
    if lengths is not None:
        ends = lengths.to(torch.int64).cumsum(-1)
    else:
        assert offsets is not None
        ends = offsets[..., 1:].to(torch.int64)
    start = torch.zeros_like(ends[..., :1]) if offsets is None else offsets[..., :1]
    segment, inside = _members(ends, data.shape[axis], start)
    counts = torch.cat([ends[..., :1] - start, ends.diff(dim=-1)], -1)
    tail = [1] * (data.dim() - axis - 1)
    wide = segment.reshape(*segment.shape, *tail).expand(data.shape)
    within = inside.reshape(*inside.shape, *tail).expand(data.shape)
    return wide, within, counts.reshape(*counts.shape, *tail)


def _check(data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int) -> int:
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    axis = axis % data.dim()
    given = lengths if lengths is not None else offsets
    assert given is not None
    if given.dim() < 1 or axis != given.dim() - 1:
        raise RuntimeError(
            "segment_reduce(): Expected axis to be the last dimension of lengths or offsets "
            f"but got {axis}."
        )
    return axis


@whole("segment_reduce")
def _segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    axis, reduce = _check(data, lengths, offsets, axis), _SHORT.get(reduce, reduce)
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if lengths is not None and not unsafe:
        low, same = torch.stack(
            [lengths.amin(), lengths.sum(-1).eq(data.shape[axis]).all()]
        ).tolist()
        if low < 0:
            raise RuntimeError("lengths contains negative value!")
        if not same:
            raise RuntimeError("segment_reduce(): Expected all rows of lengths along axis to sum "
                               "to data.size(lengths.dim()-1) when !unsafe.")  # fmt: skip
    segment, within, counts = _layout(data, lengths, offsets, axis)
    start = _START[reduce] if initial is None else initial
    shape = list(data.shape)
    shape[axis] = counts.shape[axis]
    values = torch.where(within, data, _START[reduce])
    result = torch.full(shape, start, dtype=data.dtype, device=data.device)
    result = result.scatter_reduce(axis, segment, values, _REDUCE[reduce])
    if reduce == "mean":
        # An empty segment's mean is NaN unless an initial value is given.
        divided = result / counts
        return divided if initial is None else torch.where(counts == 0, result, divided)
    return result


@whole("_segment_reduce_backward")
def _segment_reduce_backward(
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> Tensor:
    axis, reduce = axis % data.dim(), _SHORT.get(reduce, reduce)
    segment, within, counts = _layout(data, lengths, offsets, axis)
    spread = grad.gather(axis, segment)
    if reduce == "mean":
        spread = spread / counts.expand(grad.shape).gather(axis, segment)
    elif reduce in ("min", "max"):
        # Equal extrema share the gradient.
        chosen = within & ((data == output.gather(axis, segment)) | data.isnan())
        shares = torch.zeros_like(grad).scatter_add(axis, segment, chosen.to(grad.dtype))
        spread = torch.where(chosen, spread / shares.gather(axis, segment), 0)
    elif reduce == "prod":
        spread = spread * _others(data, segment, within, output.shape, axis, initial)
    return torch.where(within, spread, 0)


def _others(
    data: Tensor,
    segment: Tensor,
    within: Tensor,
    shape: torch.Size,
    axis: int,
    initial: float | None,
) -> Tensor:
    """For each element the product of its segment's others, right where some are zero or NaN."""
    zero, nan = within & (data == 0), within & data.isnan()
    start = torch.ones(shape, dtype=data.dtype, device=data.device)
    start = start if initial is None else start * initial
    apart = zero | nan
    plain = torch.where(apart | ~within, 1, data)
    product = start.scatter_reduce(axis, segment, plain, "prod").gather(axis, segment)

    def other(kind: Tensor) -> Tensor:
        """Whether another element of the segment is of this kind."""
        count = torch.zeros(shape, dtype=torch.int64, device=data.device)
        count = count.scatter_add(axis, segment, kind.to(torch.int64)).gather(axis, segment)
        return count - kind.to(torch.int64) > 0

    found = torch.where(apart, product, product / plain)
    return torch.where(other(nan), float("nan"), torch.where(other(zero), 0, found))
