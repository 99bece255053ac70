"""Matrix products: mm, bmm, mv, dot and their scaled additions.

How a product is spelled decides its speed on XLA's CPU platform. Measured on two
x86 cores with float32, medians of interleaved runs of six products a program, as a
ratio to PyTorch's CPU kernel (above 1 is faster):

=====================================  =========  =====================
product                                as is      left operand made real
=====================================  =========  =====================
[1024,128] @ [512,128]^T  (forward)    1.3 - 1.8  the same program
[1024,512] @ [128,512]^T  (forward)    1.6 - 1.7  the same program
[1024,512]^T @ [1024,128] (gradient)   0.85       1.3
[256,256]^T @ [256,784]   (gradient)   1.2        1.7
[96,64,32] @ [96,32,64]   (attention)  1.0        the same program
[96,64,32]^T @ [96,64,64] (gradient)   0.7        0.95
=====================================  =========  =====================

XLA folds a transpose into the product, and a product whose left operand contracts
its first dimension goes to a slower library than the others. An optimization
barrier on the left operand keeps the transpose out of the product; where there is
no transpose the barrier changes nothing, because producers are not fused into
products there. Making the right operand real loses (0.7 to 1.0 of the above), and
so do swapping the operands and a loop over the batch. bfloat16 operands widened by
hand take twice as long as a bfloat16 product that accumulates in float32.

A product with a single row or column is a loop of XLA's own, before which a transposed
operand is copied: [1,512] @ [2048,512]^T takes 0.1 of the time where the product contracts
the dimension as it lies, [1,128] @ [384,128]^T 0.4.

Where the device's native core is there, PyTorch's own library multiplies a transposed
left operand where it lies, without a copy: a training step of a small GPT then takes
0.93 of the time; and the products of linear layers, [1024,256] @ [768,256]^T: inference of
a small encoder takes 0.93 of the time, training as long as before. For the other products
the library is no faster than XLA: with all of them by it training took 1.02 to 1.07.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.backends.matmul import added, register_scaled, trilinear
from fuse.backends.precision import of_convolutions, of_products
from fuse.backends.xla.rules.elementwise import is_number
from fuse.backends.xla.rules.registry import Number, RuleContext, rule

Dimensions = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]

PRECISIONS = {
    "highest": lax.Precision.HIGHEST,
    "high": lax.Precision.HIGH,
    "medium": lax.Precision.DEFAULT,
}
_HALF = ("bfloat16", "float16")
_WORTH_A_COPY = 8
_LIBRARY_PRODUCTS = 1 << 20  # multiplications from which on PyTorch's library is called


def precision(ctx: RuleContext) -> lax.Precision | None:
    """How exact float32 products are where the platform would otherwise round operands.

    "highest" is float32, "high" three products of bfloat16 on a TPU and TF32 on a GPU, "medium"
    one of bfloat16. The CPU's products are float32 whatever is set.
    """
    if ctx.platform.name == "cpu":
        return None
    return PRECISIONS[of_products()]


def precision_of_convolutions(ctx: RuleContext) -> lax.Precision | None:
    """The same of convolutions: on a GPU these have a setting of their own, TF32 as it starts."""
    if ctx.platform.name == "cpu":
        return None
    return PRECISIONS[of_convolutions(ctx.platform.name)]


def is_split(ctx: RuleContext, x: jax.Array) -> bool:
    """Whether the platform's compiler refuses products of ``x``, but multiplies its elements."""
    return not ctx.platform.multiplies(str(x.dtype))


def materialised(value: jax.Array) -> jax.Array:
    """The same array, kept by XLA as a value of its own: transposes do not fold into users."""
    kept: jax.Array = lax.optimization_barrier(value)
    return kept


def contract(
    ctx: RuleContext, x: jax.Array, y: jax.Array, dims: Dimensions, made: str | None = None
) -> jax.Array:
    """``lax.dot_general`` in the dtype PyTorch accumulates in: half precision gives float32.

    ``dims`` is ``((x contracting, y contracting), (x batch, y batch))``; the result has
    the batch, then the free dimensions of ``x``, then those of ``y``. ``made``: what half precision
    gives instead, see ``rounded``.
    """
    if _by_library(ctx, x, y, dims):
        return _library(ctx, x, y, dims)
    if is_split(ctx, x):
        return split_product(x, y, dims)
    half = str(x.dtype) in _HALF
    if half and ctx.platform.name == "cpu" and x.dtype == jnp.float16:
        # XLA's CPU platform has a bfloat16 product but none for float16.
        x, y, half = x.astype(jnp.float32), y.astype(jnp.float32), False
    if ctx.platform.name == "cpu":
        narrowest = min(_free(x, dims, 0), _free(y, dims, 1))
        if narrowest == 1:
            x, y, dims = _where_they_lie(ctx, x, y, dims)
        elif narrowest >= _WORTH_A_COPY:
            x = materialised(x)
    return lax.dot_general(
        x,
        y,
        dims,
        precision=None if half else precision(ctx),
        preferred_element_type=(made or jnp.float32) if half else None,
    )


def rounded(ctx: RuleContext, x: jax.Array) -> str | None:
    """The dtype in which a product of ``x`` leaves its kernel, where that is not float32.

    On a GPU it is cuBLAS's, which adds up in float32 and rounds what it writes. Asked for float32
    it writes that, and another kernel reads and rounds it: four times the bytes of a result in
    bfloat16, by what XLA compiles for an H100.
    """
    dtype = str(x.dtype)
    same = dtype in _HALF and bool(ctx.out) and ctx.out[0].dtype == dtype
    return dtype if same and ctx.platform.name == "gpu" else None


def split_product(x: jax.Array, y: jax.Array, dims: Dimensions) -> jax.Array:
    """A product of 64-bit integers, exact modulo 2**64, for a platform of 32-bit registers.

    The TPU's compiler refuses a ``dot`` of them, but multiplies and adds them element by element,
    by 32-bit halves: so this is the sum of the products, which it fuses into one loop without
    writing them out. The contracted dimension comes last: 0.47 of the cycles of it in the middle.
    """
    (x_used, y_used), (x_batch, y_batch) = dims
    x_free = [axis for axis in range(x.ndim) if axis not in (*x_used, *x_batch)]
    y_free = [axis for axis in range(y.ndim) if axis not in (*y_used, *y_batch)]
    x = lax.transpose(x, (*x_batch, *x_free, *x_used))
    y = lax.transpose(y, (*y_batch, *y_free, *y_used))
    batch = len(x_batch)
    left = tuple(range(batch + len(x_free), batch + len(x_free) + len(y_free)))
    right = tuple(range(batch, batch + len(x_free)))
    products = jnp.expand_dims(x, left) * jnp.expand_dims(y, right)
    used = tuple(range(products.ndim - len(x_used), products.ndim))
    return products.sum(used, dtype=x.dtype)


def _where_they_lie(
    ctx: RuleContext, x: jax.Array, y: jax.Array, dims: Dimensions
) -> tuple[jax.Array, jax.Array, Dimensions]:
    """The same product of operands whose dimensions are in the order in which they lie.

    XLA drops the transposes, which undo those by which the operands were read. An operand of
    more than one free dimension stays as it is: their order is the result's.
    """
    used = len(dims[0][0]) + len(dims[1][0])
    orders = tuple(
        ctx.order(value) if value.ndim <= used + 1 else tuple(range(value.ndim)) for value in (x, y)
    )
    contracting, batch = (
        tuple(
            tuple(order.index(axis) for axis in axes)
            for order, axes in zip(orders, pair, strict=True)
        )
        for pair in dims
    )
    x, y = lax.transpose(x, orders[0]), lax.transpose(y, orders[1])
    return x, y, ((contracting[0], contracting[1]), (batch[0], batch[1]))


def _free(value: jax.Array, dims: Dimensions, side: int) -> int:
    """Number of rows (side 0) or columns (side 1) of a product."""
    used = dims[0][side] + dims[1][side]
    return int(np.prod([n for axis, n in enumerate(value.shape) if axis not in used], dtype=int))


def _by_library(ctx: RuleContext, x: jax.Array, y: jax.Array, dims: Dimensions) -> bool:
    """Whether PyTorch's CPU library is faster than XLA: for a transposed left operand, or a single
    transposed right one (a linear layer), that is large enough to wake a thread."""
    (contracting, other), (batch, _) = dims
    return (
        ctx.platform.has_kernel("product", x, y)
        and len(contracting) == 1
        and x.ndim == y.ndim == len(batch) + 2
        and x.ndim <= 3
        and (
            ctx.order(x)[-1] not in (*contracting, *batch)
            or (x.ndim == 2 and ctx.order(y)[-1] in other)
        )
        and min(_free(x, dims, 0), _free(y, dims, 1)) >= _WORTH_A_COPY
        and x.size * _free(y, dims, 1) >= _LIBRARY_PRODUCTS
    )


def _library(ctx: RuleContext, x: jax.Array, y: jax.Array, dims: Dimensions) -> jax.Array:
    """The product by PyTorch's CPU library, which reads transposed operands where they lie."""
    (x_contracting, y_contracting), (x_batch, y_batch) = dims
    shape = (*(x.shape[axis] for axis in x_batch), _free(x, dims, 0), _free(y, dims, 1))
    x, x_order = lying(x, ctx.order(x), x_batch, x_contracting[0], last=True)
    y, y_order = lying(y, ctx.order(y), y_batch, y_contracting[0], last=False)
    out = jax.ShapeDtypeStruct(shape, x.dtype)
    product: jax.Array = ctx.platform.call("product", out, x, y, x_order=x_order, y_order=y_order)
    return product


def lying(
    value: jax.Array, order: tuple[int, ...], batch: tuple[int, ...], inner: int, last: bool
) -> tuple[jax.Array, tuple[int, ...]]:
    """The operand as it lies in memory, and which dimension of the matrices each of its is.

    ``inner`` is the last dimension of the matrices, or else the last but one. The transpose
    undoes the one by which the operand was read, and XLA drops both.
    """
    (free,) = set(range(value.ndim)) - {*batch, inner}
    axes = (*batch, free, inner) if last else (*batch, inner, free)
    if order[-1] in batch:
        order = tuple(range(value.ndim))  # no row or column would lie in one piece
    return lax.transpose(value, order), tuple(axes.index(axis) for axis in order)


def matmul(ctx: RuleContext, x: jax.Array, y: jax.Array, made: str | None = None) -> jax.Array:
    """Product over the last two dimensions of operands of equal rank 2 or 3; see ``contract``."""
    batch = tuple(range(x.ndim - 2))
    return contract(ctx, x, y, (((x.ndim - 1,), (y.ndim - 2,)), (batch, batch)), made)


def _product(ctx: RuleContext, x: jax.Array, y: jax.Array) -> jax.Array:
    """The same, rounded where that is the kernel's to do."""
    return matmul(ctx, x, y, rounded(ctx, x))


def _scaled(value: jax.Array, factor: Number) -> jax.Array:
    """``factor * value`` in the value's dtype; ``factor`` may be a 0-d array."""
    if not isinstance(factor, jax.Array) and factor == 1:
        return value
    return value * jnp.asarray(factor).astype(value.dtype)


def _add(
    ctx: RuleContext, base: jax.Array, product: jax.Array, beta: Number, alpha: Number
) -> jax.Array:
    """``beta * base + alpha * product``; a zero ``beta`` ignores NaN and infinity in ``base``."""
    if not all(is_number(factor) and factor in (0, 1) for factor in (beta, alpha)):
        product = ctx.widened(product)
    product = _scaled(product, alpha)
    if not isinstance(beta, jax.Array) and beta == 0:
        return product
    base = base.astype(product.dtype)
    scaled = _scaled(base, beta)
    if isinstance(beta, jax.Array):
        scaled = jnp.where(beta == 0, jnp.zeros((), scaled.dtype), scaled)
    return scaled + product


@rule("mm", "bmm", "mm.dtype", "bmm.dtype")
def _mm(ctx: RuleContext, x: jax.Array, y: jax.Array, *_dtype: str) -> jax.Array:
    return _product(ctx, x, y)


@rule("_int_mm")
def _int_mm(ctx: RuleContext, x: jax.Array, y: jax.Array) -> jax.Array:
    """int8 or uint8 operands, int32 sums."""
    return lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)


def _scaled_product(
    ctx: RuleContext,
    x: jax.Array,
    y: jax.Array,
    scales: tuple[jax.Array, jax.Array],
    bias: jax.Array | None,
) -> jax.Array:
    """The product of 8-bit floats times their scales: of the tensors, or of rows and columns.

    ATen's kernel on the CPU saturates the one format that has no infinities, and takes no notice
    of ``scale_result``. So does oneDNN's, but for CPUs with AVX512-FP16, where it gives NaN.
    """
    factors = (scale.astype(jnp.float32) for scale in scales)
    left, right = (f if f.size > 1 else f.reshape(()) for f in factors)
    result = matmul(ctx, x.astype(jnp.float32) * left, y.astype(jnp.float32) * right)
    result = result if bias is None else result + bias.astype(jnp.float32)
    return jnp.clip(result, -448, 448) if ctx.out[0].dtype == "float8_e4m3fn" else result


register_scaled(rule, _scaled_product)


@rule("mv")
def _mv(ctx: RuleContext, x: jax.Array, v: jax.Array) -> jax.Array:
    return contract(ctx, x, v, (((1,), (0,)), ((), ())))


def _summed_product(ctx: RuleContext, x: jax.Array, y: jax.Array) -> jax.Array:
    """The sum over the batch: one product that contracts batch and inner dimension."""
    return contract(ctx, x, y, (((0, 2), (0, 1)), ((), ())))


_addmm = added(_product, _add)
rule("addmm", "baddbmm", "addmm.dtype", "baddbmm.dtype")(_addmm)
rule("addmv")(added(_mv, _add))
rule("addbmm")(added(_summed_product, _add))


@rule("_addmm_activation")
def _addmm_activation(
    ctx: RuleContext,
    base: jax.Array,
    x: jax.Array,
    y: jax.Array,
    *,
    use_gelu: bool = False,
    **factors: Number,
) -> jax.Array:
    value: jax.Array = _addmm(ctx, base, x, y, **factors)
    return jax.nn.gelu(value, approximate=False) if use_gelu else jnp.maximum(value, 0)


@rule("addr")
def _addr(
    ctx: RuleContext,
    base: jax.Array,
    u: jax.Array,
    v: jax.Array,
    *,
    beta: Number = 1,
    alpha: Number = 1,
) -> jax.Array:
    if ctx.result_type == "bool":
        # Products and sums of booleans are "and" and "or"; the factors are booleans too.
        outer = u[:, None] & v[None, :] & jnp.asarray(alpha).astype(bool)
        return outer | (base & jnp.asarray(beta).astype(bool))
    u, v = ctx.computed(u, v)
    return _add(ctx, base, u[:, None] * v[None, :], beta, alpha)


@rule("dot")
def _dot(ctx: RuleContext, u: jax.Array, v: jax.Array) -> jax.Array:
    return contract(ctx, u, v, (((0,), (0,)), ((), ())))


@rule("vdot")
def _vdot(ctx: RuleContext, u: jax.Array, v: jax.Array) -> jax.Array:
    if jnp.issubdtype(u.dtype, jnp.complexfloating):
        u = jnp.conj(u)
    return contract(ctx, u, v, (((0,), (0,)), ((), ())))


def _trilinear(
    ctx: RuleContext,
    operands: list[jax.Array],
    equation: str,
    expanded: list[tuple[int, ...]],
    dims: tuple[int, ...],
) -> jax.Array:
    if is_split(ctx, operands[0]):
        a, b, c = map(jnp.expand_dims, operands, expanded)
        return (a * b * c).sum(dims, dtype=a.dtype)  # as ``split_product``
    value: jax.Array = jnp.einsum(equation, *operands, precision=precision(ctx))
    return value


rule("_trilinear")(trilinear(_trilinear))

__all__ = [
    "contract",
    "is_split",
    "materialised",
    "matmul",
    "precision",
    "precision_of_convolutions",
]
