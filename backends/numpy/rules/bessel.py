"""NumPy rules of Bessel and Airy functions, computed in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special

from fuse.backends import bessel
from fuse.backends.numpy.rules.context import RuleContext
from fuse.backends.numpy.rules.elementwise import floats
from fuse.backends.numpy.rules.registry import Rule, rule


def _of_one(function: Callable[..., np.ndarray]) -> Rule:
    def define(ctx: RuleContext, self: np.ndarray) -> np.ndarray:
        (x,) = floats(ctx, self)
        return np.asarray(function(np, np.asarray(x, np.float64))).astype(x.dtype)

    return define


_FUNCTIONS = bessel.functions(special.i0, special.i1)
for _name, _function in _FUNCTIONS.items():
    rule(_name)(_of_one(_function))
