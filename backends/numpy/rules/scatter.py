"""gather, scatter and their reductions along one dimension, and masked_scatter.

Of several sources for one element a plain scatter keeps the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.registry import RuleContext, Scalar, rule
from fuse.backends.numpy.rules.slicing import along
from fuse.backends.scatter import refuse_sparse, register_scatter

Array = np.ndarray
_UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add, "add": np.add, "mean": np.add, "prod": np.multiply,
    "multiply": np.multiply, "amax": np.maximum, "amin": np.minimum,
}  # fmt: skip


def _places(index: Array, dim: int) -> tuple[Array, ...]:
    """Coordinates of every element that ``index`` names: its own place but along ``dim``."""
    own = list(np.ogrid[tuple(slice(size) for size in index.shape)])
    own[dim] = index
    return tuple(own)


def _cut(value: Array, shape: tuple[int, ...]) -> Array:
    """The corner of ``value`` that an index of ``shape`` uses."""
    return value[tuple(slice(size) for size in shape)]


@rule("gather")
def _gather(ctx: RuleContext, self: Array, dim: int, index: Array, *, sparse_grad: bool) -> Array:
    if index.size == 0:
        return np.zeros(index.shape, self.dtype)
    rows = np.atleast_1d(self)
    return rows[_places(np.atleast_1d(index), dim)].reshape(index.shape)


@rule("gather_backward", refuse=refuse_sparse)
def _gather_backward(
    ctx: RuleContext, grad: Array, self: Array, dim: int, index: Array, sparse_grad: bool
) -> Array:
    zeros = np.zeros(self.shape, grad.dtype)
    return _scattered(ctx, zeros, dim, index, grad, "sum", True)


def _scattered(
    ctx: RuleContext,
    self: Array,
    dim: int,
    index: Array,
    src: Array,
    reduce: str | None,
    include_self: bool,
) -> Array:
    """Write or reduce ``src`` at the elements ``index`` names; 0-d tensors count as 1-d."""
    if index.size == 0:
        return self
    rows, index, src = (np.atleast_1d(value) for value in (self, index, src))
    src, key = _cut(src, index.shape), _places(index, dim)
    if reduce is not None:
        return _reduced(ctx, rows, key, src, reduce, include_self).reshape(self.shape)
    result = rows.copy()
    result[key] = src
    return result.reshape(self.shape)


def _reduced(
    ctx: RuleContext,
    self: Array,
    key: tuple[Any, ...],
    src: Array,
    reduce: str,
    include_self: bool,
) -> Array:
    """Reduce ``src`` into the elements of ``self`` at ``key``; half precision in float32.

    On booleans NumPy's sum and maximum are "or", its product and minimum "and".
    """
    total = ctx.widened(self).copy()
    if not include_self:
        total[key] = _identity(total.dtype, reduce)
    _UFUNCS[reduce].at(total, key, src.astype(total.dtype))
    if reduce == "mean":
        count = np.full(self.shape, int(include_self))
        np.add.at(count, key, 1)
        count = np.maximum(count, 1).astype(total.dtype)
        integral = np.issubdtype(total.dtype, np.integer)
        total = total // count if integral else total / count
    return total


def _identity(dtype: np.dtype, reduce: str) -> Scalar:
    """What changes nothing when reduced with."""
    if reduce not in ("amax", "amin"):
        return int(reduce == "prod")
    if dtype == np.bool_:
        return reduce == "amin"
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return limits.max if reduce == "amin" else limits.min
    return np.inf if reduce == "amin" else -np.inf


def _filled(self: Array, index: Array, value: Scalar) -> Array:
    return np.full(index.shape, convert(value, self.dtype.name))


def _index_reduced(
    ctx: RuleContext, self: Array, dim: int, index: Array, source: Array, *how: Any
) -> Array:
    rows, source = np.atleast_1d(self), np.atleast_1d(source)
    key = along(dim, rows.ndim, index.reshape(-1))
    return _reduced(ctx, rows, key, source, *how).reshape(self.shape)


register_scatter(rule, _scattered, _index_reduced, _filled)


@rule("masked_scatter")
def _masked_scatter(ctx: RuleContext, self: Array, mask: Array, source: Array) -> Array:
    """The k-th element where ``mask`` holds takes the k-th element of ``source``."""
    shape = ctx.out[0].shape
    result, mask = np.broadcast_to(self, shape).copy(), np.broadcast_to(mask, shape)
    result[mask] = source.reshape(-1)[: np.count_nonzero(mask)]
    return result


@rule("masked_scatter_backward")
def _masked_scatter_backward(
    ctx: RuleContext, grad: Array, mask: Array, sizes: tuple[int, ...]
) -> Array:
    grad, mask = np.broadcast_arrays(grad, mask)
    taken = grad[mask]
    result = np.zeros(ctx.out[0].shape, grad.dtype)
    result.reshape(-1)[: taken.size] = taken
    return result
