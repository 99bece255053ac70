"""Reads and writes a tensor's view of a buffer with JAX operations.

Everything here is traced into the chunk: a read is at most a slice, a transpose and a
broadcast, which XLA fuses into their consumers; a write is one update slice, which XLA
does in place when the old value is donated.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.trace.spec import ITEMSIZE, Layout, View, contiguous_strides
from fuse.trace.views import Resolution, resolve

_BITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
_SPARSE = 4  # elements passed over for each one written, above which a scatter is faster
_PARTS = {"complex64": "float32", "complex128": "float64"}


def read(base: jax.Array, layout: Layout, view: View, offset: jax.Array | None = None) -> jax.Array:
    """Return the view's value, an array of ``view.shape`` and ``view.dtype``.

    Args:
        base: the buffer's array, of ``layout.shape`` and ``layout.dtype``.
        offset: a 0-d int64 array that replaces ``view.offset``; it must satisfy
            ``dynamic_bounds(layout, view)``, which the caller has checked.
    """
    found = resolve(layout, view)
    if view.numel == 0:
        return jnp.zeros(view.shape, view.dtype)
    if found.is_reshape and offset is None:
        return lax.reshape(base, view.shape) if base.shape != view.shape else base
    base = reinterpret(base, layout.dtype, view.dtype)
    if found.kind == "gather":
        return base.reshape(-1).at[_places(view, offset)].get(mode="promise_in_bounds")
    block = _block(base, found, offset)
    taken = _take(block, found, _starts(found, offset))
    kept = tuple(found.sizes[axis] for axis in sorted(found.axes))
    value = _reshaped(_transposed(_reshaped(taken, kept), found.permutation), found.inner_shape)
    return value if value.shape == view.shape else jnp.broadcast_to(value, view.shape)


def write(
    base: jax.Array | None,
    layout: Layout,
    view: View,
    value: jax.Array,
    offset: jax.Array | None = None,
) -> jax.Array:
    """Return the buffer's new array: ``base`` with the view's elements set to ``value``.

    Args:
        base: the old array of ``layout``; ``None`` for memory never written, taken as
            zeros. It is not read when the view reaches the whole buffer.
        value: an array of ``view.shape`` and ``view.dtype``. Where the view repeats an
            element (an expanded dimension), which of the repeats is kept is unspecified.
        offset: as for ``read``.
    """
    found = resolve(layout, view)
    if found.takes_all:
        region = _region(value, found)
        return _reshaped(reinterpret(region, view.dtype, layout.dtype), layout.shape)
    if base is None and offset is None and view.numel and _pads_well(found):
        numel = layout.nbytes // ITEMSIZE[view.dtype]
        new = _write_into_zeros(found, _region(value, found), numel)
        return _restored(new, None, layout, view)
    if base is None:
        base = jnp.zeros(layout.shape, layout.dtype)
    if view.numel == 0:
        return base
    old = reinterpret(base, layout.dtype, view.dtype)
    if found.kind == "gather":
        new = old.reshape(-1).at[_places(view, offset)].set(value, mode="promise_in_bounds")
    else:
        new = _write_strided(old, found, _region(value, found), offset)
    return _restored(new, base, layout, view)


def _pads_well(found: Resolution) -> bool:
    """Whether padding is the way to place the view's elements among zeros."""
    return found.kind == "strided" and math.prod(_spans(found)) <= _SPARSE * math.prod(found.sizes)


def _write_into_zeros(found: Resolution, region: jax.Array, numel: int) -> jax.Array:
    """Place ``region`` in ``numel`` zeros by padding, which fuses where an update does not."""
    zero = jnp.zeros((), region.dtype)
    if found.sizes != found.base_shape:
        edges = zip(found.base_shape, found.starts, _spans(found), _pad_steps(found), strict=True)
        config = [(start, size - start - span, step - 1) for size, start, span, step in edges]
        region = lax.pad(region, zero, config)
    if found.flat_length == numel and not found.padding:
        return region
    flat = region.reshape(-1)[: found.flat_length]
    after = numel - found.flat_start - found.flat_length
    return lax.pad(flat, zero, [(found.flat_start, after, 0)])


def _write_strided(
    old: jax.Array, found: Resolution, region: jax.Array, offset: jax.Array | None
) -> jax.Array:
    block_is_base = found.flat_length == old.size and not found.padding
    if block_is_base:
        return _put(_reshaped(old, found.base_shape), found, region, _starts(found, offset))
    if region.size == found.flat_length:
        block = region
    else:
        block = _put(_block(old, found, offset), found, region, _starts(found, offset))
    start = offset if found.windowed and offset is not None else found.flat_start
    return lax.dynamic_update_slice(
        old.reshape(-1), block.reshape(-1)[: found.flat_length], (start,)
    )


def _block(base: jax.Array, found: Resolution, offset: jax.Array | None) -> jax.Array:
    """Step 2 of the recipe: the part of the flat array that has the base shape."""
    if found.flat_length != base.size:
        flat = base.reshape(-1)
        if found.windowed and offset is not None:
            base = lax.dynamic_slice(flat, (offset,), (found.flat_length,))
        else:
            base = lax.slice(flat, (found.flat_start,), (found.flat_start + found.flat_length,))
    if found.padding:
        zero = jnp.zeros((), base.dtype)
        base = lax.pad(base.reshape(-1), zero, [(0, found.padding, 0)])
    return _reshaped(base, found.base_shape)


def _starts(found: Resolution, offset: jax.Array | None) -> tuple[Any, ...]:
    """Starts on the base dimensions: numbers, or arrays computed from a dynamic offset."""
    if offset is None or found.windowed:
        return found.starts
    starts, rest = [], offset
    for stride, size, taken in zip(
        contiguous_strides(found.base_shape), found.base_shape, found.sizes, strict=True
    ):
        if taken == size:
            starts.append(jnp.zeros((), offset.dtype))
        else:
            starts.append(rest // stride if stride != 1 else rest)
        rest = rest % stride if stride != 1 else rest
    return tuple(starts)


def _spans(found: Resolution) -> tuple[int, ...]:
    """Elements between the first and the last taken on each base dimension, both counted."""
    pairs = zip(found.sizes, found.steps, strict=True)
    return tuple((size - 1) * step + 1 for size, step in pairs)


def _take(block: jax.Array, found: Resolution, starts: tuple[Any, ...]) -> jax.Array:
    if found.sizes == found.base_shape:
        return block
    spans = _spans(found)
    if all(isinstance(start, int) for start in starts):
        limits = tuple(start + span for start, span in zip(starts, spans, strict=True))
        return lax.slice(block, starts, limits, found.steps)
    spanned = lax.dynamic_slice(block, starts, spans)
    if spans == found.sizes:
        return spanned
    return lax.slice(spanned, (0,) * len(spans), spans, found.steps)


def _put(
    block: jax.Array, found: Resolution, region: jax.Array, starts: tuple[Any, ...]
) -> jax.Array:
    """Write ``region`` over the taken elements of ``block``."""
    if found.sizes == found.base_shape:
        return region
    spans = _spans(found)
    if spans == found.sizes:
        return lax.dynamic_update_slice(block, region, starts)
    if math.prod(spans) > _SPARSE * region.size:
        return _put_scattered(block, found, region, starts)
    steps = _pad_steps(found)
    if all(size % step == 0 for size, step in zip(found.base_shape, steps, strict=True)):
        return _put_split(block, steps, region, starts)
    return _put_selected(block, spans, steps, region, starts)


def _put_scattered(
    block: jax.Array, found: Resolution, region: jax.Array, starts: tuple[Any, ...]
) -> jax.Array:
    """Write few elements of many, such as a diagonal's, one by one."""
    base_strides = contiguous_strides(found.base_shape)
    moves = zip(base_strides, found.steps, strict=True)
    strides = tuple(stride * step for stride, step in moves)
    first = sum(start * stride for start, stride in zip(starts, base_strides, strict=True))
    fixed = first if isinstance(first, int) else 0
    places = _indices(View(found.view.dtype, found.sizes, strides, fixed))
    target = block.reshape(-1).at[places if isinstance(first, int) else places + first]
    return target.set(region, mode="promise_in_bounds", unique_indices=True).reshape(block.shape)


def _put_split(
    block: jax.Array, steps: tuple[int, ...], region: jax.Array, starts: tuple[Any, ...]
) -> jax.Array:
    """Write through dimensions cut in (size / step, step), where the steps are gone."""
    split, sizes, places = [], [], []
    for size, taken, step, start in zip(block.shape, region.shape, steps, starts, strict=True):
        split += [size // step, step]
        sizes += [taken, 1]
        places += [start // step, start % step]
    finer = lax.reshape(block, split)
    return lax.dynamic_update_slice(finer, lax.reshape(region, sizes), places).reshape(block.shape)


def _put_selected(
    block: jax.Array,
    spans: tuple[int, ...],
    steps: tuple[int, ...],
    region: jax.Array,
    starts: tuple[Any, ...],
) -> jax.Array:
    """Spread the region out by its steps and keep the old elements between."""
    config = [(0, 0, step - 1) for step in steps]
    spread = lax.pad(region, jnp.zeros((), region.dtype), config)
    taken = jnp.ones(spans, bool)
    for dim, step in enumerate(steps):
        if step > 1:
            taken = taken & (lax.broadcasted_iota("int32", spans, dim) % step == 0)
    merged = lax.select(taken, spread, lax.dynamic_slice(block, starts, spans))
    return lax.dynamic_update_slice(block, merged, starts)


def _pad_steps(found: Resolution) -> tuple[int, ...]:
    return tuple(
        step if size > 1 else 1 for size, step in zip(found.sizes, found.steps, strict=True)
    )


def _region(value: jax.Array, found: Resolution) -> jax.Array:
    """Undo steps 4 and 5 of the recipe: a value of the view's shape as one of ``sizes``."""
    if found.inner_shape != value.shape:
        repeated = tuple(
            0 if inner != size else slice(None)
            for inner, size in zip(found.inner_shape, value.shape, strict=True)
        )
        value = value[repeated]
    value = _reshaped(value, tuple(found.sizes[axis] for axis in found.axes))
    inverse = tuple(int(axis) for axis in np.argsort(found.permutation))
    return _reshaped(_transposed(value, inverse), found.sizes)


def _reshaped(value: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return value if value.shape == shape else lax.reshape(value, shape)


def _transposed(value: jax.Array, permutation: tuple[int, ...]) -> jax.Array:
    ordered = permutation == tuple(range(len(permutation)))
    return value if ordered else lax.transpose(value, permutation)


def _places(view: View, offset: jax.Array | None) -> jax.Array:
    if offset is None:
        return _indices(view)
    return _indices(View(view.dtype, view.shape, view.strides)) + offset


def _indices(view: View) -> jax.Array:
    """Flat index of every element of the view, in its shape; computed, not a stored constant."""
    last = sum((n - 1) * stride for n, stride in zip(view.shape, view.strides, strict=True))
    dtype = "int64" if view.offset + last >= 2**31 else "int32"
    indices = jnp.full(view.shape, view.offset, dtype)
    for dim, stride in enumerate(view.strides):
        if stride and view.shape[dim] > 1:
            indices = indices + lax.broadcasted_iota(dtype, view.shape, dim) * stride
    return indices


def reinterpret(value: jax.Array, source: str, target: str) -> jax.Array:
    """Reinterpret the bytes of an array; flat unless the dtype stays, odd end bytes cut."""
    if source == target:
        return value
    bits = _to_bits(value.reshape(-1), source)
    width, wanted = bits.dtype.itemsize, ITEMSIZE[_PARTS.get(target, target)]
    if width > wanted:
        bits = lax.bitcast_convert_type(bits, _BITS[wanted]).reshape(-1)
    elif width < wanted:
        ratio = wanted // width
        whole = bits[: bits.size // ratio * ratio].reshape(-1, ratio)
        bits = lax.bitcast_convert_type(whole, _BITS[wanted])
    return _from_bits(bits, target)


def _to_bits(flat: jax.Array, dtype: str) -> jax.Array:
    if dtype in _PARTS:
        flat = jnp.stack([flat.real, flat.imag], axis=-1).reshape(-1)
    if dtype == "bool":
        return flat.astype("uint8")
    return lax.bitcast_convert_type(flat, _BITS[flat.dtype.itemsize])


def _from_bits(bits: jax.Array, dtype: str) -> jax.Array:
    if dtype == "bool":
        return bits != 0
    if dtype in _PARTS:
        parts = bits[: bits.size // 2 * 2].reshape(-1, 2)
        real, imaginary = (lax.bitcast_convert_type(parts[:, k], _PARTS[dtype]) for k in (0, 1))
        return lax.complex(real, imaginary)
    return lax.bitcast_convert_type(bits, dtype)


def _restored(new: jax.Array, base: jax.Array | None, layout: Layout, view: View) -> jax.Array:
    """Bring a written array back to the buffer's dtype and shape, with its odd end bytes."""
    flat = reinterpret(new, view.dtype, layout.dtype)
    missing = layout.nbytes % ITEMSIZE[view.dtype]
    if missing:
        tail = jnp.zeros(missing, "uint8")
        if base is not None:
            tail = reinterpret(base, layout.dtype, "uint8").reshape(-1)[-missing:]
        joined = jnp.concatenate([reinterpret(new, view.dtype, "uint8").reshape(-1), tail])
        flat = reinterpret(joined, "uint8", layout.dtype)
    return _reshaped(flat, layout.shape)
