"""NumPy rules of sorting, order statistics and searching."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from fuse.backends.numpy.rules.elementwise import is_complex, is_float, is_nan
from fuse.backends.numpy.rules.reduction import first_index
from fuse.backends.numpy.rules.registry import Rule, RuleContext, Value, rule
from fuse.backends.sorting import register_search

Array = np.ndarray


# --- the stable order ----------------------------------------------------------------


def stable_order(ctx: RuleContext, x: Array, axis: int, descending: bool) -> Array:
    """Positions (int64) that sort ``x`` along ``axis``: ties keep their order, NaN is largest."""
    x = ctx.widened(x)
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    # Sorting the reversed row and reversing the result keeps ties in order.
    backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(backwards, axis)


def _row(x: Array, dim: int) -> tuple[Array, int]:
    """A scalar as one element, and the axis that ``dim`` names."""
    row = np.atleast_1d(x)
    return row, dim % row.ndim


def _shaped(ctx: RuleContext, *values: Array) -> tuple[Array, ...]:
    return tuple(v.reshape(spec.shape) for v, spec in zip(values, ctx.out, strict=True))


def _complex(ctx: RuleContext, x: Array, *_: object, **__: object) -> str | None:
    return "complex numbers have no order" if is_complex(x) else None


@rule("sort", "sort.stable", refuse=_complex)
def _sort(
    ctx: RuleContext,
    x: Array,
    dim: int = -1,
    descending: bool = False,
    *,
    stable: bool | None = None,
) -> tuple[Array, ...]:
    row, axis = _row(x, dim)
    order = stable_order(ctx, row, axis, descending)
    return _shaped(ctx, np.take_along_axis(row, order, axis), order)


# --- order statistics ----------------------------------------------------------------


@rule("topk", refuse=_complex)
def _topk(
    ctx: RuleContext, x: Array, k: int, dim: int = -1, largest: bool = True, in_order: bool = True
) -> tuple[Array, ...]:
    row, axis = _row(x, dim)
    order = np.take(stable_order(ctx, row, axis, descending=largest), range(k), axis)
    return _shaped(ctx, np.take_along_axis(row, order, axis), order)


@rule("kthvalue", refuse=_complex)
def _kthvalue(
    ctx: RuleContext, x: Array, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[Array, ...]:
    row, axis = _row(x, dim)
    order = np.take(stable_order(ctx, row, axis, descending=False), [k - 1], axis)
    return _shaped(ctx, np.take_along_axis(row, order, axis), order)


def _median(ctx: RuleContext, x: Array, axis: int, ignore_nan: bool) -> Array:
    """The lower median's position, with ``axis`` kept.

    With NaN in the row ``median`` gives the first NaN; ``nanmedian`` counts the rest.
    """
    order = stable_order(ctx, x, axis, descending=False)
    nan = is_nan(x)
    valid = np.sum(~nan, axis=axis, keepdims=True) if ignore_nan else x.shape[axis]
    middle = np.broadcast_to(
        np.maximum(valid - 1, 0) // 2, [1 if d == axis else s for d, s in enumerate(x.shape)]
    )
    index = np.take_along_axis(order, middle, axis)
    if ignore_nan:
        return index
    some = nan.any(axis=axis, keepdims=True)
    return np.where(some, np.argmax(nan, axis=axis, keepdims=True), index)


def _median_rules(name: str, ignore_nan: bool) -> tuple[Rule, Rule]:
    def no_elements(ctx: RuleContext, x: Array) -> str | None:
        return "the median of no integers" if x.size == 0 and not is_float(x) else None

    def whole(ctx: RuleContext, x: Array) -> Array:
        flat = x.reshape(-1)
        if flat.size == 0:
            return np.array(math.nan, x.dtype)
        return flat[_median(ctx, flat, 0, ignore_nan)].reshape(())

    def empty_dimension(ctx: RuleContext, x: Array, dim: int, keepdim: bool = False) -> str | None:
        row, axis = _row(x, dim)
        return "the median of an empty dimension" if row.shape[axis] == 0 else None

    def along(ctx: RuleContext, x: Array, dim: int, keepdim: bool = False) -> tuple[Array, ...]:
        row, axis = _row(x, dim)
        index = _median(ctx, row, axis, ignore_nan)
        return _shaped(ctx, np.take_along_axis(row, index, axis), index)

    return (
        rule(name, refuse=no_elements)(whole),
        rule(f"{name}.dim", refuse=empty_dimension)(along),
    )


_median_rules("median", ignore_nan=False)
_median_rules("nanmedian", ignore_nan=True)


@rule("mode")
def _mode(ctx: RuleContext, x: Array, dim: int = -1, keepdim: bool = False) -> tuple[Array, ...]:
    """The most frequent value, the smallest of equals, and the last position that holds it."""
    row, axis = _row(x, dim)
    order = np.moveaxis(stable_order(ctx, row, axis, descending=False), axis, -1)
    values = np.take_along_axis(np.moveaxis(row, axis, -1), order, -1)
    position = np.arange(values.shape[-1])
    starts = np.ones(values.shape, np.bool_)
    starts[..., 1:] = values[..., 1:] != values[..., :-1]  # NaN starts a run each
    run = position - np.maximum.accumulate(np.where(starts, position, 0), axis=-1)
    # The longest run ends where the count of its members is largest, first at the smallest value.
    end = first_index(run, run.max(axis=-1, keepdims=True), run.ndim - 1)
    return _shaped(ctx, np.take_along_axis(values, end, -1), np.take_along_axis(order, end, -1))


# --- searching -----------------------------------------------------------------------


def _search(sequence: Array, values: Array, right: bool) -> Array:
    """Insertion points (int64) of ``values`` along the last axis of a sorted ``sequence``.

    PyTorch's bisection (native/Bucketization.cpp) with all values in step, so that NaN gets its
    answer. ``sequence`` is one-dimensional, or its leading dimensions equal those of ``values``.
    """
    size = sequence.shape[-1]
    low, high = np.zeros(values.shape, np.int64), np.full(values.shape, size, np.int64)
    rows = np.broadcast_to(sequence, (*values.shape[:-1], size)) if values.ndim else sequence
    for _ in range(size.bit_length()):
        middle = (low + high) // 2
        # Once low meets high the middle may be one past the end: keep the read in range.
        index = np.minimum(middle, size - 1)
        at = np.take_along_axis(rows, index, -1) if values.ndim else rows[index]
        beyond = ~(at > values) if right else ~(at >= values)
        live = low < high
        low, high = np.where(live & beyond, middle + 1, low), np.where(live & ~beyond, middle, high)
    return low


register_search(rule, _search, partial(np.take_along_axis, axis=-1))


@rule("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor")
def _isin(
    ctx: RuleContext, elements: Value, candidates: Value, *, invert: bool = False, **_hints: bool
) -> Array:
    x, y = ctx.computed(elements, candidates)
    return np.isin(x, y, invert=invert)


@rule("histc")
def _histc(ctx: RuleContext, x: Array, bins: int = 100, low: float = 0, high: float = 0) -> Array:
    """Counts in equal bins; equal limits stand for the data's own range.

    Where PyTorch raises for a range that is not finite, every count is 0. Integers, which its CPU
    kernel does not take, go to bins as on its accelerators, by integer division.
    """
    integers = np.issubdtype(x.dtype, np.integer)
    x = x.reshape(-1).astype(np.int64 if integers else x.dtype)
    first, last = x.dtype.type(low), x.dtype.type(high)
    if first == last and x.size:
        first, last = x.min(), x.max()
    if first == last:
        first, last = first - x.dtype.type(1), last + x.dtype.type(1)
    inside = x[(x >= first) & (x <= last)]
    if not (math.isfinite(first) and math.isfinite(last)):
        inside = inside[:0]
    share = (inside - first) * x.dtype.type(bins)
    bin_of = (share // (last - first) if integers else share / (last - first)).astype(np.int64)
    return np.bincount(np.minimum(bin_of, bins - 1), minlength=bins)
