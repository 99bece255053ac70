"""XLA rules of Bessel and Airy functions."""

from __future__ import annotations

from collections.abc import Callable

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


def _of_one(function: Callable[..., jax.Array]) -> Rule:
    def emit(ctx: RuleContext, x: jax.Array) -> jax.Array:
        return function(jnp, cast(x, float_dtype(ctx)))

    return emit


_FUNCTIONS = bessel.functions(_i0, _i1)
for _name, _function in _FUNCTIONS.items():
    rule(_name)(_of_one(_function))
