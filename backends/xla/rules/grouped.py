"""Products of groups of rows: what a mixture of experts computes.

The groups are where a vector of offsets says, so that shapes do not depend on how many rows each
expert was given. On an accelerator it is XLA's ragged product; on the CPU, where XLA multiplies
all rows with every expert's matrix, PyTorch's library multiplies group by group.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.xla.rules.matmul import lying, matmul, precision
from fuse.backends.xla.rules.registry import RuleContext, rule

_SUMS_OF_GROUPS = lax.RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), [1], [])


@rule("_grouped_mm")
def _grouped_mm(
    ctx: RuleContext,
    x: jax.Array,
    y: jax.Array,
    offs: jax.Array | None = None,
    bias: jax.Array | None = None,
    out_dtype: str | None = None,
) -> jax.Array:
    """Group ``i`` ends before ``offs[i]``, and begins where the one before it ends.

    ``[rows, k] @ [groups, k, n]``, ``[groups, m, k] @ [k, columns]``, or of two matrices the sums
    over groups, ``[groups, m, n]``. Rows and columns in no group are 0 (on the CPU, anything).
    """
    if offs is None:
        return matmul(ctx, x, y)
    if ctx.platform.name == "cpu":
        x, y = x.astype(jnp.float32), y.astype(jnp.float32)  # half precision would be as slow
    if ctx.platform.has_kernel("grouped_product", x, y):
        return _library(ctx, x, y, offs)
    sizes = jnp.diff(offs, prepend=jnp.zeros((1,), offs.dtype))
    options: dict[str, Any] = {
        "precision": None if x.dtype != jnp.float32 else precision(ctx),
        "preferred_element_type": jnp.float32,
    }
    if x.ndim == y.ndim:
        return lax.ragged_dot_general(x, y, sizes, _SUMS_OF_GROUPS, **options)
    if x.ndim == 2:
        return lax.ragged_dot(x, y, sizes, **options)
    columns = lax.ragged_dot(y.T, x.transpose(0, 2, 1), sizes, **options)
    return columns.T


def _library(ctx: RuleContext, x: jax.Array, y: jax.Array, offs: jax.Array) -> jax.Array:
    batches = [tuple(range(value.ndim - 2)) for value in (x, y)]
    shape = tuple(ctx.out[0].shape)
    left, x_order = lying(x, ctx.order(x), batches[0], x.ndim - 1, last=True)
    right, y_order = lying(y, ctx.order(y), batches[1], y.ndim - 2, last=False)
    found: jax.Array = ctx.platform.call(
        "grouped_product",
        jax.ShapeDtypeStruct(shape, x.dtype),
        left,
        right,
        offs,
        x_order=x_order,
        y_order=y_order,
    )
    return found
