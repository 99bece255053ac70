"""Products of groups of rows: what a mixture of experts computes."""

from __future__ import annotations

import numpy as np

from fuse.backends.numpy.rules.matmul import product
from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray


@rule("_grouped_mm")
def _grouped_mm(
    ctx: RuleContext,
    x: Array,
    y: Array,
    offs: Array | None = None,
    bias: Array | None = None,
    out_dtype: str | None = None,
) -> Array:
    """Group ``i`` ends before ``offs[i]``, and begins where the one before it ends.

    ``[rows, k] @ [groups, k, n]``, ``[groups, m, k] @ [k, columns]``, or of two matrices the sums
    over groups, ``[groups, m, n]``. Rows and columns in no group are 0 (on the CPU, anything).
    """
    if offs is None:
        return product(ctx, x, y)
    result = np.zeros(ctx.out[0].shape, ctx.widened(x).dtype)
    start = 0
    for group, end in enumerate(offs.tolist()):
        rows = slice(start, end)
        if x.ndim == y.ndim:
            result[group] = product(ctx, x[:, rows], y[rows])
        elif x.ndim == 2:
            result[rows] = product(ctx, x[rows], y[group])
        else:
            result[:, rows] = product(ctx, x[group], y[:, rows])
        start = end
    return result
