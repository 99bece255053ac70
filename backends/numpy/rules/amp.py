"""What ``torch.amp.GradScaler`` calls.

After aten/src/ATen/native/cuda/AmpKernels.cu: a scale that would overflow stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray


@rule("_amp_foreach_non_finite_check_and_unscale")
def _unscale(
    ctx: RuleContext, grads: Sequence[Array], found_inf: Array, inv_scale: Array
) -> tuple[list[Array], Array]:
    values = [ctx.widened(grad) for grad in grads]
    finite = all(np.isfinite(one).all() for one in values)
    unscaled = [
        convert(one * inv_scale.item(), grad.dtype.name)
        for one, grad in zip(values, grads, strict=True)
    ]
    return unscaled, found_inf if finite else np.ones_like(found_inf)


@rule("_amp_update_scale")
def _update_scale(
    ctx: RuleContext,
    scale: Array,
    tracker: Array,
    found_inf: Array,
    growth: float,
    backoff: float,
    interval: int,
) -> tuple[Array, Array]:
    steps = tracker + 1
    if found_inf.item() != 0:
        return convert(scale.astype(np.float64) * backoff, scale.dtype.name), np.zeros_like(tracker)
    if steps.item() != interval:
        return scale, steps
    grown = convert(scale.astype(np.float64) * growth, scale.dtype.name)
    return grown if np.isfinite(grown).all() else scale, np.zeros_like(tracker)
