"""Reading and replacing elements at computed indices: index, index_put, index_select, take.

NumPy's indexing and PyTorch's agree, with ``slice(None)`` for an index of ``None``. An index
out of range raises ``IndexError``. Where indices name an element more than once, a write
leaves the last value and an accumulation adds every one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.registry import RuleContext, Scalar, rule
from fuse.backends.numpy.rules.slicing import along

Array = np.ndarray
Indices = list[Array | None]
_MASK = "a mask as index: the shape of the result depends on the data"


def _is_mask(index: Array | None) -> bool:
    return index is not None and index.dtype in (np.bool_, np.uint8)


def _key(indices: Indices) -> tuple[Any, ...]:
    """NumPy's spelling of the index; bytes are masks too."""
    parts: list[Any] = []
    for index in indices:
        if index is None:
            parts.append(slice(None))
        else:
            parts.append(index.astype(bool) if _is_mask(index) else index)
    return tuple(parts)


def _refuse_masks(ctx: RuleContext, self: Array, indices: Indices) -> str | None:
    return _MASK if any(map(_is_mask, indices)) else None


@rule("index.Tensor", "_unsafe_index.Tensor", refuse=_refuse_masks)
def _index(ctx: RuleContext, self: Array, indices: Indices) -> Array:
    return np.asarray(self[_key(indices)])


def _put(ctx: RuleContext, self: Array, key: Any, values: Array, accumulate: bool) -> Array:
    """``self[key] (+)= values`` in a copy."""
    if not accumulate:
        result = self.copy()
        result[key] = values
        return result
    result = ctx.widened(self).copy()
    np.add.at(result, key, values.astype(result.dtype))
    return result


@rule("index_put", "_unsafe_index_put", "_index_put_impl")
def _index_put(
    ctx: RuleContext,
    self: Array,
    indices: Indices,
    values: Array,
    accumulate: bool,
    unsafe: bool = False,
) -> Array:
    return _put(ctx, self, _key(indices), values, accumulate)


def _clamped(self: Array, indices: Indices) -> Indices:
    return [
        None if index is None else np.clip(index, -size, size - 1)
        for index, size in zip(indices, self.shape, strict=False)
    ]


@rule("_unsafe_masked_index")
def _masked_index(
    ctx: RuleContext, self: Array, mask: Array, indices: Indices, fill: Scalar
) -> Array:
    return np.where(mask, self[_key(_clamped(self, indices))], convert(fill, self.dtype.name))


@rule("_unsafe_masked_index_put_accumulate")
def _masked_index_put(
    ctx: RuleContext, self: Array, mask: Array, indices: Indices, values: Array
) -> Array:
    kept = np.where(mask, values, np.zeros((), values.dtype))
    return _put(ctx, self, _key(_clamped(self, indices)), kept, True)


@rule("index_select")
def _index_select(ctx: RuleContext, self: Array, dim: int, index: Array) -> Array:
    rows = np.atleast_1d(self)
    return np.take(rows, index.reshape(-1), dim).reshape(ctx.out[0].shape)


@rule("index_select_backward")
def _index_select_backward(
    ctx: RuleContext, grad: Array, self_sizes: tuple[int, ...], dim: int, index: Array
) -> Array:
    zeros = np.zeros(ctx.out[0].shape, grad.dtype)
    return _write_rows(ctx, zeros, dim, index, grad, accumulate=True)


def _write_rows(
    ctx: RuleContext, self: Array, dim: int, index: Array, source: Array, accumulate: bool
) -> Array:
    """``self[..., index, ...] (+)= source``; 0-d tensors count as 1-d."""
    rows = np.atleast_1d(self)
    dim %= rows.ndim
    source = source.reshape(*rows.shape[:dim], index.size, *rows.shape[dim + 1 :])
    key = along(dim, rows.ndim, index.reshape(-1))
    return _put(ctx, rows, key, source, accumulate).reshape(self.shape)


@rule("index_add")
def _index_add(
    ctx: RuleContext, self: Array, dim: int, index: Array, source: Array, *, alpha: Scalar
) -> Array:
    scaled = ctx.widened(source)
    scaled = scaled * convert(alpha, scaled.dtype.name)
    return _write_rows(ctx, self, dim, index, scaled, accumulate=True)


@rule("index_copy")
def _index_copy(ctx: RuleContext, self: Array, dim: int, index: Array, source: Array) -> Array:
    return _write_rows(ctx, self, dim, index, source, accumulate=False)


@rule("index_fill.int_Scalar", "index_fill.int_Tensor")
def _index_fill(ctx: RuleContext, self: Array, dim: int, index: Array, value: Scalar) -> Array:
    rows = np.atleast_1d(self).copy()
    rows[along(dim, rows.ndim, index.reshape(-1))] = convert(value, self.dtype.name)
    return rows.reshape(self.shape)


@rule("take")
def _take(ctx: RuleContext, self: Array, index: Array) -> Array:
    """Elements of the flattened tensor."""
    return self.reshape(-1)[index.reshape(-1)].reshape(index.shape)


@rule("put")
def _put_flat(
    ctx: RuleContext, self: Array, index: Array, source: Array, accumulate: bool
) -> Array:
    key, values = index.reshape(-1), source.reshape(-1)
    return _put(ctx, self.reshape(-1), key, values, accumulate).reshape(self.shape)
