"""XLA rules of sorting, order statistics and searching.

XLA's CPU sort of several operands calls its comparator element by element; its sort of
one integer array does not, and is six times faster. On CPU a stable order is therefore
found by sorting one int64: an order-preserving 32-bit key above the position. Wider
dtypes take two such passes, low half first (least-significant-digit radix order).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.backends.reduction import at_least_1d
from fuse.backends.sorting import register_search
from fuse.backends.xla.rules.elementwise import bits_of
from fuse.backends.xla.rules.reduction import (
    axis_of,
    first_index,
    is_float,
    is_nan,
    kept,
    maximum,
    number,
)
from fuse.backends.xla.rules.registry import Number, RuleContext, Unsupported, always, rule
from fuse.trace.spec import TensorSpec

Array = jax.Array
_FEW = 16
"""Up to so many candidates, comparing with each is faster than a sort and a search on CPU."""


# --- the stable order ----------------------------------------------------------------


def _sort_key(x: Array) -> Array:
    """Integers ordered as PyTorch orders ``x``: -0 equals 0, every NaN is largest.

    Signed, 32 bits for dtypes of up to 4 bytes, else 64.
    """
    if is_float(x):
        x = x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
        clean = jnp.where(is_nan(x), jnp.full((), jnp.nan, x.dtype), x)
        clean = jnp.where(clean == 0, jnp.zeros((), x.dtype), clean)
        raw = bits_of(clean)
        bits = 8 * raw.dtype.itemsize - 1
        # Negative floats order backwards in their magnitude bits: flip these.
        flipped: Array = raw ^ ((raw >> bits) & np.iinfo(raw.dtype).max)
        return flipped
    if x.dtype in (jnp.uint32, jnp.uint64):
        signed = jnp.int32 if x.dtype == jnp.uint32 else jnp.int64
        shifted: Array = lax.bitcast_convert_type(x, signed) ^ np.iinfo(signed).min
        return shifted
    return x.astype(jnp.int64 if x.dtype.itemsize == 8 else jnp.int32)


def _order_of_32_bits(key: Array, axis: int) -> Array:
    position = lax.broadcasted_iota(jnp.int64, key.shape, axis)
    packed = (key.astype(jnp.int64) << 32) | position
    # No two are equal, but XLA's stable sort is the faster one (20 against 31 ms for 10^6).
    return lax.sort(packed, dimension=axis, is_stable=True) & 0xFFFFFFFF


def stable_order(ctx: RuleContext, x: Array, axis: int, descending: bool) -> Array:
    """Positions (int64, shape of ``x``) that sort ``x`` along ``axis``; ties keep their order."""
    key = _sort_key(x)
    key = ~key if descending else key
    specs = TensorSpec(str(key.dtype), key.shape), TensorSpec("int64", key.shape)
    made = ctx.platform.operator("sort.stable", specs, [key], {"stable": True, "dim": axis})
    if made is not None:
        return made[1]
    if ctx.platform.name != "cpu" or x.shape[axis] >= 2**31:
        position = lax.broadcasted_iota(jnp.int64, key.shape, axis)
        return lax.sort((key, position), dimension=axis, is_stable=True, num_keys=1)[1]
    if key.dtype == jnp.int32:
        return _order_of_32_bits(key, axis)
    low = (key & 0xFFFFFFFF) ^ 0x80000000  # as a signed half its top bit must be flipped
    first = _order_of_32_bits(low.astype(jnp.int32), axis)
    high = take(key >> 32, first, axis)
    return take(first, _order_of_32_bits(high.astype(jnp.int32), axis), axis)


def take(x: Array, index: Array, axis: int) -> Array:
    """``take_along_dim`` of indices known to be in range; the result has the index's shape."""
    return jnp.take_along_axis(x, index, axis, mode="promise_in_bounds")


def _sorted(ctx: RuleContext, x: Array, dim: int, descending: bool) -> tuple[Array, Array, int]:
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise Unsupported("an order of complex numbers")
    row = at_least_1d(x)
    axis = axis_of(dim, row.ndim)
    order = stable_order(ctx, row, axis, descending)
    return take(row, order, axis), order, axis


@rule("sort", "sort.stable")
def _sort(
    ctx: RuleContext,
    x: Array,
    dim: int = -1,
    descending: bool = False,
    *,
    stable: bool | None = None,
) -> tuple[Array, Array]:
    values, order, _ = _sorted(ctx, x, dim, descending)
    return values.reshape(x.shape), order.reshape(x.shape)


# --- order statistics ----------------------------------------------------------------


def _fits_float32(dtype: np.dtype) -> bool:
    return bool(dtype.itemsize <= 2 or dtype == jnp.float32)


def _top_floats(row: Array, k: int, largest: bool) -> Array:
    """Positions of the top ``k`` of the last axis, by XLA's partial sort of float32.

    That orders floats totally (-NaN < -inf, inf < NaN), so NaN gets the sign that makes
    it largest, and the negation needed for the smallest makes it last.
    """
    wide = row.astype(jnp.float32)
    nan = number(jnp.nan, jnp.float32)
    wide = jnp.where(is_nan(wide), nan, wide)
    wide = wide if largest else lax.neg(wide)
    flat = wide.reshape(-1, wide.shape[-1])
    index = lax.top_k(flat, k)[1]
    return index.reshape(row.shape[:-1] + (k,)).astype(jnp.int64)


@rule("topk")
def _topk(
    ctx: RuleContext, x: Array, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True
) -> tuple[Array, Array]:
    row = at_least_1d(x)
    axis = axis_of(dim, row.ndim)
    if _fits_float32(x.dtype) and x.size and k:
        last = jnp.moveaxis(row, axis, -1)
        index = _top_floats(last, k, largest)
        values = jnp.moveaxis(take(last, index, last.ndim - 1), -1, axis)
        index = jnp.moveaxis(index, -1, axis)
    else:
        values, index, axis = _sorted(ctx, x, dim, largest)
        values, index = (lax.slice_in_dim(v, 0, k, axis=axis) for v in (values, index))
    return values.reshape(ctx.out[0].shape), index.reshape(ctx.out[1].shape)


@rule("kthvalue")
def _kthvalue(
    ctx: RuleContext, x: Array, k: Number, dim: int = -1, keepdim: bool = False
) -> tuple[Array, ...]:
    values, order, axis = _sorted(ctx, x, dim, descending=False)
    pair = (lax.dynamic_slice_in_dim(v, k - 1, 1, axis=axis) for v in (values, order))
    return tuple(v.reshape(s.shape) for v, s in zip(pair, ctx.out, strict=True))


def _median(ctx: RuleContext, x: Array, axis: int, ignore_nan: bool) -> tuple[Array, Array]:
    """The lower median and its position, with ``axis`` kept.

    With NaN in the row ``median`` gives the first NaN; ``nanmedian`` counts the rest.
    """
    size = x.shape[axis]
    order = stable_order(ctx, x, axis, descending=False)
    middle = lax.slice_in_dim(order, (size - 1) // 2, (size - 1) // 2 + 1, axis=axis)
    if not is_float(x):
        return take(x, middle, axis), middle
    nan = is_nan(x)
    if ignore_nan:
        valid = kept(x, lax.reduce_sum((~nan).astype(jnp.int64), (axis,)), (axis,))
        index = take(order, lax.max(valid - 1, jnp.zeros_like(valid)) // 2, axis)
    else:
        some = maximum(nan, (axis,))
        first = kept(x, first_index(nan, some, axis), (axis,))
        index = jnp.where(kept(x, some, (axis,)), first, middle)
    return take(x, index, axis), index


def _median_rules(suffix: str, ignore_nan: bool) -> None:
    def whole(ctx: RuleContext, x: Array) -> Array:
        if x.size == 0 and not is_float(x):
            raise Unsupported("the median of no integers")
        if x.size == 0:
            return jnp.full((), jnp.nan, x.dtype)
        return _median(ctx, x.reshape(-1), 0, ignore_nan)[0].reshape(())

    def along(ctx: RuleContext, x: Array, dim: int, keepdim: bool = False) -> tuple[Array, ...]:
        row = at_least_1d(x)
        if row.shape[axis_of(dim, row.ndim)] == 0:
            raise Unsupported("the median of an empty dimension")
        pair = _median(ctx, row, axis_of(dim, row.ndim), ignore_nan)
        return tuple(v.reshape(s.shape) for v, s in zip(pair, ctx.out, strict=True))

    rule(suffix, may_refuse=always)(whole)
    rule(f"{suffix}.dim", may_refuse=always)(along)


_median_rules("median", ignore_nan=False)
_median_rules("nanmedian", ignore_nan=True)


@rule("mode")
def _mode(ctx: RuleContext, x: Array, dim: int = -1, keepdim: bool = False) -> tuple[Array, ...]:
    """The most frequent value, the smallest of equals, and the last position that holds it."""
    values, order, axis = _sorted(ctx, x, dim, descending=False)
    size = values.shape[axis]
    position = lax.broadcasted_iota(jnp.int64, values.shape, axis)
    previous = lax.slice_in_dim(values, 0, size - 1, axis=axis)
    starts = lax.slice_in_dim(values, 1, size, axis=axis) != previous  # NaN starts a run each
    first = jnp.ones(values.shape[:axis] + (1,) + values.shape[axis + 1 :], jnp.bool_)
    starts = lax.concatenate((first, starts), axis)
    run = position - lax.cummax(jnp.where(starts, position, 0), axis=axis)
    # The longest run ends where the count of its members is largest, first at the smallest value.
    end = kept(values, first_index(run, maximum(run, (axis,)), axis), (axis,))
    pair = (take(values, end, axis), take(order, end, axis))
    return tuple(v.reshape(s.shape) for v, s in zip(pair, ctx.out, strict=True))


# --- searching -----------------------------------------------------------------------


def _search(sequence: Array, values: Array, right: bool) -> Array:
    """Insertion points (int64) of ``values`` along the last axis of a sorted ``sequence``.

    PyTorch's bisection (native/Bucketization.cpp) with all values in step, so that NaN
    gets its answer. ``sequence`` is one-dimensional, or its leading dimensions equal
    those of ``values``.
    """
    shape, size = values.shape, sequence.shape[-1]
    values = values.reshape(-1) if sequence.ndim == 1 else values
    if values.size == 0 or size == 0:
        return jnp.zeros(shape, jnp.int64)

    def step(_: object, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = low + ((high - low) >> 1)
        # Once low meets high the middle may be one past the end: keep the read in range.
        at = take(sequence, lax.min(middle, jnp.full_like(middle, size - 1)), sequence.ndim - 1)
        beyond = ~(at > values) if right else ~(at >= values)
        live = low < high
        low = jnp.where(live & beyond, middle + 1, low)
        return low, jnp.where(live & ~beyond, middle, high)

    index = jnp.int32 if size < 2**31 - 1 else jnp.int64
    bounds = (jnp.zeros(values.shape, index), jnp.full(values.shape, size, index))
    found: Array = lax.fori_loop(0, size.bit_length(), step, bounds)[0]
    return found.astype(jnp.int64).reshape(shape)


register_search(rule, _search, lambda sequence, sorter: take(sequence, sorter, sequence.ndim - 1))


@rule("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor")
def _isin(
    ctx: RuleContext, elements: Number, candidates: Number, *, invert: bool = False, **_hints: bool
) -> Array:
    x, y = ctx.promoted(elements, candidates)
    y = y.reshape(-1)
    if y.size <= _FEW:
        found = lax.reduce_or(x[..., None] == y, (x.ndim,))
    else:
        ordered = take(y, stable_order(ctx, y, 0, descending=False), 0)
        place = lax.min(_search(ordered, x, right=False), jnp.int64(y.size - 1))
        found = take(ordered, place.reshape(-1), 0).reshape(x.shape) == x
    return ~found if invert else found


@rule("histc")
def _histc(ctx: RuleContext, x: Array, bins: int = 100, low: Number = 0, high: Number = 0) -> Array:
    """Counts in equal bins; equal limits stand for the data's own range.

    Where PyTorch raises for a range that is not finite, every count is 0. Integers, which its CPU
    kernel does not take, go to bins as on its accelerators, by integer division.
    """
    integers, kept = jnp.issubdtype(x.dtype, jnp.integer), x.dtype
    x = x.reshape(-1).astype(jnp.int64 if integers else x.dtype)
    low, high = number(low, x.dtype), number(high, x.dtype)
    if x.size:
        own = low == high
        low, high = (
            jnp.where(own, lax.reduce_min(x, (0,)), low),
            jnp.where(own, lax.reduce_max(x, (0,)), high),
        )
    flat = low == high
    low, high = jnp.where(flat, low - 1, low), jnp.where(flat, high + 1, high)
    inside = (x >= low) & (x <= high)
    share = (x - low) * number(bins, x.dtype)
    bin_of = (share // (high - low) if integers else share / (high - low)).astype(jnp.int32)
    bin_of = jnp.where(inside, lax.min(bin_of, jnp.full_like(bin_of, bins - 1)), bins)
    return jnp.zeros((bins,), kept).at[bin_of].add(jnp.ones_like(x, kept), mode="drop")
