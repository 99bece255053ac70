"""NumPy rules of scans along one dimension: cumulative sums, products, extrema, log-sum-exp."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fuse.backends.numpy.rules.arithmetic import logaddexp
from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.elementwise import is_nan
from fuse.backends.numpy.rules.registry import Rule, RuleContext, rule

Array = np.ndarray


def _scanned(function: Callable[..., Array], x: Array, dim: int) -> Array:
    """``function(x, axis=dim)``; a scalar counts as one element."""
    return function(np.atleast_1d(x), axis=dim).reshape(x.shape)


def _cumulative(function: Callable[..., Array]) -> Rule:
    def define(ctx: RuleContext, x: Array, dim: int, *, dtype: str | None = None) -> Array:
        # The cast comes first: int8 sums do not wrap, they accumulate as int64. Floats are
        # accumulated in double, as in PyTorch.
        wide = convert(x, ctx.out[0].dtype)
        wide = convert(wide, "float64") if "float" in ctx.out[0].dtype else wide
        return _scanned(lambda v, axis: function(v, axis=axis, dtype=v.dtype), wide, dim)

    return define


rule("cumsum")(_cumulative(np.cumsum))
rule("cumprod")(_cumulative(np.cumprod))


def _with_last_index(extremum: np.ufunc, x: Array, dim: int) -> tuple[Array, Array]:
    """Running extremum (NaN stays once met) and the LAST index at which it was met.

    PyTorch moves the index on ties and on every further NaN (native/ReduceOps.cpp,
    cummax_cummin_helper), so the index is the running maximum of those positions.
    """
    row = np.atleast_1d(x)
    values = extremum.accumulate(row, axis=dim)
    moves = (row == values) | is_nan(row)
    shape = [1] * row.ndim
    shape[dim] = -1
    position = np.arange(row.shape[dim]).reshape(shape)
    indices = np.maximum.accumulate(np.where(moves, position, 0), axis=dim)
    return values.reshape(x.shape), indices.reshape(x.shape)


def _cumulative_extremum(extremum: np.ufunc) -> Rule:
    def define(ctx: RuleContext, x: Array, dim: int) -> tuple[Array, Array]:
        return _with_last_index(extremum, x, dim)

    return define


def _helper(extremum: np.ufunc) -> Rule:
    """An operator that only writes its arguments: the new values of these, in order."""

    def define(
        ctx: RuleContext, x: Array, values: Array, indices: Array, dim: int
    ) -> tuple[Array, Array]:
        return _with_last_index(extremum, x, dim)

    return define


for _name, _extremum in (("cummax", np.maximum), ("cummin", np.minimum)):
    rule(_name)(_cumulative_extremum(_extremum))
    rule(f"_{_name}_helper")(_helper(_extremum))


@rule("logcumsumexp", "_logcumsumexp")
def _logcumsumexp(ctx: RuleContext, x: Array, dim: int) -> Array:
    def scan(v: Array, axis: int) -> Array:
        result = np.moveaxis(v.copy(), axis, 0)
        for k in range(1, len(result)):
            result[k] = logaddexp(result[k - 1], result[k])
        return np.moveaxis(result, 0, axis)

    return _scanned(scan, ctx.widened(x), dim)
