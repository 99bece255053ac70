"""Matrix products: mm, bmm, mv, dot and their scaled additions.

Half-precision operands are multiplied and added in float32, as PyTorch accumulates.
"""

from __future__ import annotations

import math
import string
from typing import Any

import numpy as np

from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.registry import RuleContext, rule
from fuse.backends.numpy.rules.special import erf

Array = np.ndarray


def product(ctx: RuleContext, x: Array, y: Array) -> Array:
    """``x @ y`` in the dtype PyTorch accumulates in."""
    return np.asarray(ctx.widened(x) @ ctx.widened(y))


def _scaled(value: Array, factor: Any) -> Array:
    return value * convert(factor, value.dtype.name)


def _add(ctx: RuleContext, base: Array, value: Array, beta: Any, alpha: Any) -> Array:
    """``beta * base + alpha * value``; a zero ``beta`` ignores NaN and infinity in ``base``."""
    value = _scaled(value, alpha)
    return value if beta == 0 else _scaled(base.astype(value.dtype), beta) + value


@rule("mm", "bmm", "mv", "dot")
def _mm(ctx: RuleContext, x: Array, y: Array) -> Array:
    return product(ctx, x, y)


@rule("mm.dtype", "bmm.dtype")
def _mm_dtype(ctx: RuleContext, x: Array, y: Array, out_dtype: str) -> Array:
    return product(ctx, x, y)


_TENSOR_WISE, _ROW_WISE = 0, 1  # torch.nn.functional.ScalingType


def _scaled_product(
    ctx: RuleContext, x: Array, y: Array, scales: tuple[Array, Array], bias: Array | None
) -> Array:
    """The product of 8-bit floats times their scales: of the tensors, or of rows and columns.

    ATen's kernel on the CPU saturates the one format that has no infinities, and takes no notice
    of ``scale_result``. So does oneDNN's, but for CPUs with AVX512-FP16, where it gives NaN.
    """
    left, right = (f if f.size > 1 else f.reshape(()) for f in scales)
    result = (x.astype(np.float32) * left) @ (y.astype(np.float32) * right)
    result = result if bias is None else result + bias.astype(np.float32)
    return np.clip(result, -448, 448) if ctx.out[0].dtype == "float8_e4m3fn" else result


@rule("_scaled_mm")
def _scaled_mm(
    ctx: RuleContext,
    x: Array,
    y: Array,
    scale_a: Array,
    scale_b: Array,
    bias: Array | None = None,
    scale_result: Array | None = None,
    *_options: Any,
) -> Array:
    return _scaled_product(ctx, x, y, (scale_a, scale_b), bias)


def _refuse_blocks(
    ctx: RuleContext,
    x: Array,
    y: Array,
    scale_a: list[Array],
    recipe_a: tuple[int, ...],
    swizzle_a: tuple[int, ...],
    scale_b: list[Array],
    recipe_b: tuple[int, ...],
    *_options: Any,
) -> str | None:
    known = {*recipe_a, *recipe_b} <= {_TENSOR_WISE, _ROW_WISE}
    return None if known else "scales of blocks of a matrix"


@rule("_scaled_mm_v2", refuse=_refuse_blocks)
def _scaled_mm_recipes(
    ctx: RuleContext,
    x: Array,
    y: Array,
    scale_a: list[Array],
    recipe_a: tuple[int, ...],
    swizzle_a: tuple[int, ...],
    scale_b: list[Array],
    recipe_b: tuple[int, ...],
    swizzle_b: tuple[int, ...],
    bias: Array | None = None,
    *_options: Any,
) -> Array:
    return _scaled_product(ctx, x, y, (scale_a[0], scale_b[0]), bias)


@rule("vdot")
def _vdot(ctx: RuleContext, u: Array, v: Array) -> Array:
    return product(ctx, np.conj(ctx.widened(u)), v)


@rule("_int_mm")
def _int_mm(ctx: RuleContext, x: Array, y: Array) -> Array:
    """int8 or uint8 operands, int32 sums."""
    return x.astype(np.int32) @ y.astype(np.int32)


@rule("addmm", "baddbmm", "addmv")
def _addmm(
    ctx: RuleContext, base: Array, x: Array, y: Array, *, beta: Any = 1, alpha: Any = 1
) -> Array:
    return _add(ctx, base, product(ctx, x, y), beta, alpha)


@rule("addmm.dtype", "baddbmm.dtype")
def _addmm_dtype(
    ctx: RuleContext,
    base: Array,
    x: Array,
    y: Array,
    out_dtype: str,
    *,
    beta: Any = 1,
    alpha: Any = 1,
) -> Array:
    return _add(ctx, base, product(ctx, x, y), beta, alpha)


@rule("_addmm_activation")
def _addmm_activation(
    ctx: RuleContext,
    base: Array,
    x: Array,
    y: Array,
    *,
    beta: Any = 1,
    alpha: Any = 1,
    use_gelu: bool = False,
) -> Array:
    value = _add(ctx, base, product(ctx, x, y), beta, alpha)
    if use_gelu:
        return (value * (1 + erf(value / math.sqrt(2))) / 2).astype(value.dtype)
    return np.maximum(value, 0)


@rule("addbmm")
def _addbmm(
    ctx: RuleContext, base: Array, x: Array, y: Array, *, beta: Any = 1, alpha: Any = 1
) -> Array:
    total = np.sum(product(ctx, x, y), axis=0, dtype=ctx.widened(x).dtype)
    return _add(ctx, base, total, beta, alpha)


@rule("addr")
def _addr(
    ctx: RuleContext, base: Array, u: Array, v: Array, *, beta: Any = 1, alpha: Any = 1
) -> Array:
    if ctx.result_type == "bool":
        # Products and sums of booleans are "and" and "or"; the factors are booleans too.
        return (np.outer(u, v) & bool(alpha)) | (base & bool(beta))
    u, v = ctx.computed(u, v)
    return _add(ctx, base, np.outer(u, v), beta, alpha)


@rule("_trilinear")
def _trilinear(
    ctx: RuleContext,
    first: Array,
    second: Array,
    third: Array,
    expand1: tuple[int, ...],
    expand2: tuple[int, ...],
    expand3: tuple[int, ...],
    sumdim: tuple[int, ...],
    unroll_dim: int = 1,
) -> Array:
    """Product of three tensors, each expanded at its own dimensions, then summed."""
    letters = string.ascii_letters[: first.ndim + len(expand1)]

    def without(dims: tuple[int, ...]) -> str:
        return "".join(letter for dim, letter in enumerate(letters) if dim not in dims)

    names = ",".join(without(dims) for dims in (expand1, expand2, expand3))
    wide = [ctx.widened(operand) for operand in (first, second, third)]
    return np.asarray(np.einsum(f"{names}->{without(sumdim)}", *wide))


__all__ = ["product"]
