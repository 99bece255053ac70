"""NumPy rules of Bessel and Airy functions, computed in float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fuse.backends import bessel
from fuse.backends.numpy.rules.context import RuleContext
from fuse.backends.numpy.rules.elementwise import floats
from fuse.backends.numpy.rules.registry import Rule, rule
from fuse.backends.numpy.rules.special import i0e, i1e


def _i0(x: np.ndarray) -> np.ndarray:
    return i0e(x) * np.exp(x)


def _i1(x: np.ndarray) -> np.ndarray:
    return i1e(x) * np.exp(x)


def _of_one(function: Callable[..., Any]) -> Rule:
    def define(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
        (x,) = floats(ctx, self)
        return np.asarray(function(np, np.asarray(x, np.float64))).astype(x.dtype)

    return define


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
