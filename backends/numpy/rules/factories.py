"""NumPy rules that make tensors from numbers, fill them, and copy or convert them.

Shape and dtype come from the promised result (``ctx.out``), never from the arguments, so that
one rule serves a factory, its ``_like`` and ``new_`` forms and a fill in place. Some operators
exist in place only and are registered so: the rule returns the new value.
"""

from __future__ import annotations

import numpy as np

from fuse.backends.numpy.rules.context import RuleContext, convert
from fuse.backends.numpy.rules.registry import Rule, Scalar, Value, rule
from fuse.backends.overloads import EMPTY, FULL

# --- constants ---------------------------------------------------------------


def constant(ctx: RuleContext, value: Value) -> np.ndarray:
    """The promised result, every element ``value``."""
    spec = ctx.out[0]
    return np.broadcast_to(convert(value, spec.dtype), spec.shape)


def _always(value: int) -> Rule:
    def define(ctx: RuleContext, *_: object, **__: object) -> np.ndarray:
        return constant(ctx, value)

    return define


rule(*EMPTY)(_always(0))
rule("ones", "ones_like", "new_ones")(_always(1))


@rule(*FULL, "new_full", "scalar_tensor")
def _full(ctx: RuleContext, *arguments: Value, dtype: str | None = None) -> np.ndarray:
    """The number comes last, after what says the shape."""
    return constant(ctx, arguments[-1])


# --- copies and conversions --------------------------------------------------


@rule("clone", "lift", "lift_fresh", "lift_fresh_copy", "_to_copy")
def _clone(ctx: RuleContext, self: np.ndarray, dtype: str | None = None) -> np.ndarray:
    return convert(self, ctx.out[0].dtype)


@rule("copy", "copy_")
def _copy(ctx: RuleContext, self: np.ndarray, source: np.ndarray) -> np.ndarray:
    return constant(ctx, source)


# --- ranges ------------------------------------------------------------------


def _arithmetic(ctx: RuleContext, start: Scalar, step: Scalar) -> np.ndarray:
    """``start + i * step``, in what PyTorch's CPU computes a range in: int64, double or complex."""
    spec = ctx.out[0]
    work = "float64" if "float" in spec.dtype else "int64"
    work = spec.dtype if spec.dtype.startswith("complex") else work
    return convert(start, work) + np.arange(spec.shape[0]).astype(work) * convert(step, work)


@rule("arange")
def _arange(ctx: RuleContext, end: Scalar, dtype: str | None = None) -> np.ndarray:
    return _arithmetic(ctx, 0, 1)


@rule("arange.start", "arange.start_step", "range", "range.step")
def _arange_start(
    ctx: RuleContext, start: Scalar, end: Scalar, step: Scalar = 1, dtype: str | None = None
) -> np.ndarray:
    return _arithmetic(ctx, start, step)


def _line(start: np.ndarray, end: np.ndarray, steps: int) -> np.ndarray:
    """``steps`` points from ``start`` to ``end``, each half counted from its own end."""
    if steps < 2:
        return np.broadcast_to(start, (steps,))
    step = (end - start) / start.dtype.type(steps - 1)
    index = np.arange(steps)
    left = start + step * index.astype(start.dtype)
    right = end - step * (steps - 1 - index).astype(start.dtype)
    return np.where(index < steps // 2, left, right)


@rule("linspace", "linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor")
def _linspace(
    ctx: RuleContext, start: Scalar, end: Scalar, steps: int, dtype: str | None = None
) -> np.ndarray:
    target = ctx.out[0].dtype
    work = {"float16": "float32", "bfloat16": "float32"}.get(target, target)
    work = work if "float" in work or "complex" in work else "float64"
    # 1.7 is 1 for an integer result.
    return _line(convert(convert(start, target), work), convert(convert(end, target), work), steps)


@rule("logspace", "logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor")
def _logspace(
    ctx: RuleContext,
    start: Scalar,
    end: Scalar,
    steps: int,
    base: float = 10.0,
    dtype: str | None = None,
) -> np.ndarray:
    target = ctx.out[0].dtype
    work = target if target.startswith("complex") else "float64"
    first, last = (convert(convert(v, target), work) for v in (start, end))
    return np.power(convert(base, work), _line(first, last, steps))


# --- matrices ----------------------------------------------------------------


@rule("eye", "eye.m")
def _eye(ctx: RuleContext, n: int, m: int | None = None, dtype: str | None = None) -> np.ndarray:
    rows, columns = ctx.out[0].shape
    return np.eye(rows, columns)


@rule("tril_indices")
def _tril_indices(
    ctx: RuleContext, row: int, col: int, offset: int = 0, dtype: str | None = None
) -> np.ndarray:
    return np.stack(np.nonzero(np.tri(row, col, offset, dtype=np.bool_)))


@rule("triu_indices")
def _triu_indices(
    ctx: RuleContext, row: int, col: int, offset: int = 0, dtype: str | None = None
) -> np.ndarray:
    return np.stack(np.nonzero(~np.tri(row, col, offset - 1, dtype=np.bool_)))
