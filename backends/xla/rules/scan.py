"""XLA rules of scans along one dimension: cumulative sums, products, extrema, log-sum-exp.

``jax.lax`` scans are trees, so a float32 sum of n elements is off by log n roundings
where a plain loop is off by n; PyTorch's CPU loop accumulates in double instead.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.reduction import at_least_1d
from fuse.backends.xla.rules.arithmetic import complex_logaddexp
from fuse.backends.xla.rules.reduction import axis_of, is_float, is_nan
from fuse.backends.xla.rules.registry import Rule, RuleContext, rule

Scan = Callable[..., jax.Array]


def scanned(scan: Scan, x: jax.Array, dim: int) -> jax.Array:
    """Apply a ``lax`` scan along ``dim``; scalars and empty arrays pass, the shape stays."""
    if x.size == 0:
        return x
    row = at_least_1d(x)
    return scan(row, axis=axis_of(dim, row.ndim)).reshape(x.shape)


def _cumulative(scan: Scan) -> Rule:
    def emit(ctx: RuleContext, x: jax.Array, dim: int, *, dtype: str | None = None) -> jax.Array:
        # The cast comes first: int8 sums do not wrap, they accumulate as int64.
        return scanned(scan, ctx.widened(x.astype(ctx.out[0].dtype)), dim)

    return emit


rule("cumsum")(_cumulative(lax.cumsum))
rule("cumprod")(_cumulative(lax.cumprod))


def _with_last_index(scan: Scan, x: jax.Array, dim: int) -> tuple[jax.Array, jax.Array]:
    """Running extremum (NaN stays once met) and the LAST index at which it was met.

    PyTorch moves the index on ties and on every further NaN (native/ReduceOps.cpp,
    cummax_cummin_helper), so the index is the running maximum of those positions.
    """
    narrow = x.astype(jnp.uint8) if x.dtype == jnp.bool_ else x
    values = scanned(scan, narrow, dim)
    moves = narrow == values
    if is_float(narrow):
        moves = moves | is_nan(narrow)
    row = at_least_1d(moves)
    position = lax.broadcasted_iota(jnp.int64, row.shape, axis_of(dim, row.ndim))
    marked = jnp.where(row, position, 0).reshape(x.shape)
    return values, scanned(lax.cummax, marked, dim)


def _cumulative_extremum(scan: Scan) -> Rule:
    def emit(ctx: RuleContext, x: jax.Array, dim: int) -> tuple[jax.Array, jax.Array]:
        return _with_last_index(scan, x, dim)

    return emit


def _helper(scan: Scan) -> Rule:
    """An operator that only writes its arguments: the new values of these, in order."""

    def emit(
        ctx: RuleContext, x: jax.Array, values: jax.Array, indices: jax.Array, dim: int
    ) -> tuple[jax.Array, ...]:
        return tuple(
            new.astype(old.dtype)
            for new, old in zip(_with_last_index(scan, x, dim), (values, indices), strict=True)
        )

    return emit


for _name, _scan in (("cummax", lax.cummax), ("cummin", lax.cummin)):
    rule(_name)(_cumulative_extremum(_scan))
    rule(f"_{_name}_helper")(_helper(_scan))


def _by_tree(add: Callable[[jax.Array, jax.Array], jax.Array]) -> Scan:
    def scan(row: jax.Array, axis: int) -> jax.Array:
        result: jax.Array = lax.associative_scan(add, row, axis=axis)
        return result

    return scan


@rule("logcumsumexp", "_logcumsumexp")
def _logcumsumexp(ctx: RuleContext, x: jax.Array, dim: int) -> jax.Array:
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return scanned(_by_tree(complex_logaddexp), x, dim)
    wide = ctx.widened(x)
    # On a TPU lax.cumlogsumexp reduces a window, which ends a v6e's compiler where the numbers
    # come from half precision.
    scan = lax.cumlogsumexp if wide.dtype == x.dtype else _by_tree(jnp.logaddexp)
    return scanned(scan, wide, dim)
