"""XLA rules of Bessel and Airy functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends import bessel
from fuse.backends.xla.rules.elementwise import cast, float_dtype
from fuse.backends.xla.rules.registry import Rule, RuleContext, rule


def _i0(x: jax.Array) -> jax.Array:
    return lax.bessel_i0e(x) * jnp.exp(x)


def _i1(x: jax.Array) -> jax.Array:
    return lax.bessel_i1e(x) * jnp.exp(x)


def _of_one(function: Callable[..., Any]) -> Rule:
    def emit(ctx: RuleContext, x: jax.Array) -> Any:
        return function(jnp, cast(x, float_dtype(ctx)))

    return emit


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "special_airy_ai": bessel.airy_ai,
    "special_bessel_j0": bessel.j0,
    "special_bessel_j1": bessel.j1,
    "special_bessel_y0": bessel.y0,
    "special_bessel_y1": bessel.y1,
    "special_modified_bessel_k0": partial(bessel.k0, i0=_i0, scaled=False),
    "special_modified_bessel_k1": partial(bessel.k1, i1=_i1, scaled=False),
    "special_scaled_modified_bessel_k0": partial(bessel.k0, i0=_i0, scaled=True),
    "special_scaled_modified_bessel_k1": partial(bessel.k1, i1=_i1, scaled=True),
}
for _name, _function in _FUNCTIONS.items():
    rule(_name)(_of_one(_function))
