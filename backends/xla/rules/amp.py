"""What ``torch.amp.GradScaler`` calls.

After aten/src/ATen/native/cuda/AmpKernels.cu: a scale that would overflow stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from fuse.backends.xla.rules.registry import Number, RuleContext, rule

Array = jax.Array


@rule("_amp_foreach_non_finite_check_and_unscale")
def _unscale(
    ctx: RuleContext, grads: Sequence[Array], found_inf: Array, inv_scale: Array
) -> tuple[list[Array], Array]:
    for grad in grads:
        found_inf = jnp.where(jnp.isfinite(grad).all(), found_inf, jnp.ones_like(found_inf))
    scale = inv_scale.reshape(())
    return [(grad * scale).astype(grad.dtype) for grad in grads], found_inf


@rule("_amp_update_scale")
def _update_scale(
    ctx: RuleContext,
    scale: Array,
    tracker: Array,
    found_inf: Array,
    growth: Number,
    backoff: Number,
    interval: Number,
) -> tuple[Array, Array]:
    precise, found = scale.astype(jnp.float64), (found_inf != 0).reshape(())
    grown = (precise * growth).astype(scale.dtype)
    grown = jnp.where(jnp.isfinite(grown), grown, scale)
    steps = tracker + 1
    grows = (steps == interval).reshape(())
    shrunk = (precise * backoff).astype(scale.dtype)
    updated = jnp.where(found, shrunk, jnp.where(grows, grown, scale))
    return updated, jnp.where(found | grows, jnp.zeros_like(tracker), steps)
