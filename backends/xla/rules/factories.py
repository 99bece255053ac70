"""XLA rules that make tensors from numbers, fill them, and copy or convert them.

Shape and dtype come from the promised result (``ctx.out``), never from the arguments,
so that one rule serves a factory, its ``_like`` and ``new_`` forms and a fill in place.
Some operators exist in place only and are registered so: the rule returns the new value.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax

from fuse.backends.overloads import EMPTY, FULL
from fuse.backends.xla.rules.context import RuleContext
from fuse.backends.xla.rules.elementwise import (
    Value,
    cast,
    convert,
    expand,
    is_complex,
    is_float,
    is_number,
    like,
    select,
)
from fuse.backends.xla.rules.registry import Rule, rule

Numbers = npt.NDArray[np.int64]

# --- constants ---------------------------------------------------------------


def constant(ctx: RuleContext, value: Value) -> Value:
    """The promised result, every element ``value``."""
    spec = ctx.out[0]
    return expand(convert(value, spec.dtype), spec.shape)


def _always(value: int) -> Rule:
    def emit(ctx: RuleContext, *args: Value, **kwargs: Value) -> Value:
        return constant(ctx, value)

    return emit


rule(*EMPTY)(_always(0))
rule("ones", "ones_like", "new_ones")(_always(1))


@rule(*FULL, "new_full", "scalar_tensor")
def _full(ctx: RuleContext, *arguments: Value, dtype: str | None = None) -> Value:
    """The number comes last, after what says the shape."""
    return constant(ctx, arguments[-1])


# --- copies and conversions --------------------------------------------------


@rule("clone", "lift", "lift_fresh", "lift_fresh_copy")
def _clone(ctx: RuleContext, self: Value) -> Value:
    return self


@rule("_to_copy")
def _to_copy(ctx: RuleContext, self: Value, dtype: str | None = None) -> Value:
    return convert(self, ctx.out[0].dtype)


@rule("copy", "copy_")
def _copy(ctx: RuleContext, self: Value, source: Value) -> Value:
    return constant(ctx, source)


# --- ranges ------------------------------------------------------------------


def _work_dtype(dtype: str) -> str:
    """What PyTorch's CPU computes a range in: int64, double, or the complex dtype."""
    if is_complex(dtype):
        return dtype
    return "float64" if is_float(dtype) else "int64"


def _arithmetic(ctx: RuleContext, start: Value, step: Value) -> Value:
    spec = ctx.out[0]
    dtype = _work_dtype(spec.dtype)
    start, step = (convert(v, dtype) for v in (start, step))
    index = lax.iota(np.dtype(dtype), spec.shape[0])
    if is_number(step) and step == 1 and is_number(start) and start == 0:
        return cast(index, spec.dtype)
    return cast(lax.add(lax.mul(index, step), start), spec.dtype)


@rule("arange")
def _arange(ctx: RuleContext, end: Value, dtype: str | None = None) -> Value:
    return _arithmetic(ctx, 0, 1)


@rule("arange.start", "arange.start_step", "range", "range.step")
def _arange_start(
    ctx: RuleContext, start: Value, end: Value, step: Value = 1, dtype: str | None = None
) -> Value:
    return _arithmetic(ctx, start, step)


def _line(start: Value, end: Value, steps: int, dtype: str) -> Value:
    """``steps`` points from ``start`` to ``end``, each half counted from its own end."""
    start, end = (cast(v, dtype) for v in (start, end))
    if steps < 2:
        return expand(start, (steps,))
    step = lax.div(lax.sub(end, start), cast(steps - 1, dtype))
    index = lax.iota(np.dtype("int64"), steps)
    left = lax.add(lax.mul(cast(index, dtype), step), start)
    rest = cast(lax.sub(np.int64(steps - 1), index), dtype)
    right = lax.sub(expand(end, (steps,)), lax.mul(rest, step))
    return select(lax.lt(index, np.int64(steps // 2)), left, right)


def _line_dtype(dtype: str) -> str:
    if is_complex(dtype) or dtype == "float64":
        return dtype
    return "float32" if is_float(dtype) else "float64"


@rule("linspace", "linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor")
def _linspace(
    ctx: RuleContext, start: Value, end: Value, steps: int, dtype: str | None = None
) -> Value:
    target = ctx.out[0].dtype
    start, end = (convert(v, target) for v in (start, end))  # 1.7 is 1 for an integer result
    return convert(_line(start, end, steps, _line_dtype(target)), target)


@rule("logspace", "logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor")
def _logspace(
    ctx: RuleContext,
    start: Value,
    end: Value,
    steps: int,
    base: float = 10.0,
    dtype: str | None = None,
) -> Value:
    target = ctx.out[0].dtype
    work = target if is_complex(target) else "float64"
    start, end = (convert(v, target) for v in (start, end))
    line = _line(start, end, steps, work)
    return convert(lax.pow(like(line, base), line), target)


# --- matrices ----------------------------------------------------------------


@rule("eye", "eye.m")
def _eye(ctx: RuleContext, n: int, m: int | None = None, dtype: str | None = None) -> Value:
    spec = ctx.out[0]
    rows, columns = (lax.broadcasted_iota(np.int32, spec.shape, axis) for axis in (0, 1))
    return cast(lax.eq(rows, columns), spec.dtype)


def _triangle(ctx: RuleContext, lengths: Numbers, first_columns: Numbers) -> Value:
    """Coordinates of a triangle's cells, row by row: int[2, cells].

    Args:
        ctx: its promised result gives the number of cells.
        lengths: number of cells in each row, int64[rows].
        first_columns: column of each row's first cell, int64[rows].
    """
    spec = ctx.out[0]
    index = lax.iota(np.dtype("int64"), spec.shape[1])
    if not len(lengths):
        return expand(cast(0, spec.dtype), spec.shape)
    ends = np.cumsum(lengths)
    rows = jnp.searchsorted(jnp.asarray(ends), index, side="right")
    shift = first_columns - (ends - lengths)
    columns = lax.add(index, jnp.asarray(shift)[rows])
    return cast(jnp.stack((cast(rows, "int64"), columns)), spec.dtype)


@rule("tril_indices")
def _tril_indices(
    ctx: RuleContext, row: int, col: int, offset: int = 0, dtype: str | None = None
) -> Value:
    lengths = np.clip(np.arange(row, dtype=np.int64) + offset + 1, 0, col)
    return _triangle(ctx, lengths, np.zeros(row, np.int64))


@rule("triu_indices")
def _triu_indices(
    ctx: RuleContext, row: int, col: int, offset: int = 0, dtype: str | None = None
) -> Value:
    first = np.clip(np.arange(row, dtype=np.int64) + offset, 0, col)
    return _triangle(ctx, col - first, first)
