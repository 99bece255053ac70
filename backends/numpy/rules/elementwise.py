"""Shared steps of the elementwise rules: kinds of dtypes, and operands as floats."""

from __future__ import annotations

import numpy as np

from fuse.backends.numpy.rules.context import RuleContext, Value, convert

REAL_OF = {"complex64": "float32", "complex128": "float64"}
_WIDE = {"float16": "float32", "bfloat16": "float32"}


def is_float(x: np.ndarray) -> bool:
    """Whether the dtype is a real floating-point one (ml_dtypes' have a kind of their own)."""
    return "float" in x.dtype.name


def is_complex(x: np.ndarray) -> bool:
    """Whether the dtype is complex."""
    return x.dtype.kind == "c"


def is_integer(x: np.ndarray) -> bool:
    """Whether the dtype is an integer one; bool is not."""
    return x.dtype.kind in "iu"


def is_nan(x: np.ndarray) -> np.ndarray:
    """Whether each element is NaN, false for integers; a complex number is when a part is."""
    return np.not_equal(x, x)


def float_dtype(ctx: RuleContext) -> str:
    """The dtype a function of reals computes in: integers become the default float."""
    for dtype in (ctx.result_type, ctx.out[0].dtype):
        if "float" in dtype or "complex" in dtype:
            return _WIDE.get(dtype, dtype)
    return "float32"


def floats(ctx: RuleContext, *values: Value) -> tuple[np.ndarray, ...]:
    """Operands in ``float_dtype``."""
    return tuple(convert(value, float_dtype(ctx)) for value in values)


def like(x: np.ndarray, number: Value) -> np.ndarray:
    """A number in the dtype of ``x``: 0-d."""
    return convert(number, x.dtype.name)


def larger(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The larger of two, NaN where either is; of equal ones, zeros of two signs, the first.

    So PyTorch's CPU has it, but for long rows of two tensors, where some are the second.
    """
    return np.where(np.less(x, y) | is_nan(y), y, x)


def smaller(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The smaller of two, as ``larger``."""
    return np.where(np.greater(x, y) | is_nan(y), y, x)


def make_complex(real: np.ndarray, imag: np.ndarray) -> np.ndarray:
    """``real + i imag``, built from its parts so that infinities stay in theirs."""
    real, imag = np.broadcast_arrays(real, imag)
    result = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
    result.real, result.imag = real, imag
    return result
