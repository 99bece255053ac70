"""Matrix products: mm, bmm, mv, dot and their scaled additions.

Half-precision operands are multiplied and added in float32, as PyTorch accumulates.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from fuse.backends.matmul import added, register_scaled, trilinear
from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.registry import RuleContext, Scalar, rule

Array = np.ndarray


def product(ctx: RuleContext, x: Array, y: Array) -> Array:
    """``x @ y`` in the dtype PyTorch accumulates in."""
    return np.asarray(ctx.widened(x) @ ctx.widened(y))


def _scaled(value: Array, factor: Scalar) -> Array:
    return value * convert(factor, value.dtype.name)


def _add(ctx: RuleContext, base: Array, value: Array, beta: Scalar, alpha: Scalar) -> Array:
    """``beta * base + alpha * value``; a zero ``beta`` ignores NaN and infinity in ``base``."""
    value = _scaled(value, alpha)
    return value if beta == 0 else _scaled(base.astype(value.dtype), beta) + value


@rule("mm", "bmm", "mv", "dot", "mm.dtype", "bmm.dtype")
def _mm(ctx: RuleContext, x: Array, y: Array, *_dtype: str) -> Array:
    return product(ctx, x, y)


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


register_scaled(rule, _scaled_product)


@rule("vdot")
def _vdot(ctx: RuleContext, u: Array, v: Array) -> Array:
    return product(ctx, np.conj(ctx.widened(u)), v)


@rule("_int_mm")
def _int_mm(ctx: RuleContext, x: Array, y: Array) -> Array:
    """int8 or uint8 operands, int32 sums."""
    return x.astype(np.int32) @ y.astype(np.int32)


def _summed_product(ctx: RuleContext, x: Array, y: Array) -> Array:
    return np.sum(product(ctx, x, y), axis=0, dtype=ctx.widened(x).dtype)


_addmm = added(product, _add)
rule("addmm", "baddbmm", "addmv", "addmm.dtype", "baddbmm.dtype")(_addmm)
rule("addbmm")(added(_summed_product, _add))


@rule("_addmm_activation")
def _addmm_activation(
    ctx: RuleContext, base: Array, x: Array, y: Array, *, use_gelu: bool = False, **factors: Scalar
) -> Array:
    value: Array = _addmm(ctx, base, x, y, **factors)
    if use_gelu:
        return (value * (1 + special.erf(value / math.sqrt(2))) / 2).astype(value.dtype)
    return np.maximum(value, 0)


@rule("addr")
def _addr(
    ctx: RuleContext, base: Array, u: Array, v: Array, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Array:
    if ctx.result_type == "bool":
        # Products and sums of booleans are "and" and "or"; the factors are booleans too.
        return (np.outer(u, v) & bool(alpha)) | (base & bool(beta))
    u, v = ctx.computed(u, v)
    return _add(ctx, base, np.outer(u, v), beta, alpha)


def _trilinear(ctx: RuleContext, operands: list[Array], equation: str, *_dims: object) -> Array:
    return np.asarray(np.einsum(equation, *operands))


rule("_trilinear")(trilinear(_trilinear))

__all__ = ["product"]
