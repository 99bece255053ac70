"""Bit for bit, NumPy's random rules make the draws that XLA's make."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)
import numpy as np
import pytest

from tests.backends.test_numpy_random import draw
from tests.backends.test_rules_random import CONTINUOUS, COUNT, OFFSET, WEIGHTS, draw as xla_draw

EXACT = {"uniform", "rand", "bernoulli", "random", "randint", "randperm"}
"""Operators whose draws are sums and products of exact numbers: the same bits everywhere."""


def base(name: str) -> str:
    return name.partition(".")[0].rstrip("_").removesuffix("_like")


@pytest.mark.parametrize(("name", "args", "dtype", "moments"), CONTINUOUS)
def test_draws_are_those_of_xla(
    name: str, args: tuple[Any, ...], dtype: str, moments: tuple[float, float]
) -> None:
    ours = draw(name, *args, dtype=dtype, offset=OFFSET)
    theirs = xla_draw(name, *args, dtype=dtype, offset=OFFSET)
    assert np.abs(moments[0] - theirs.astype(np.float64).mean()) < np.sqrt(moments[1])
    # Only a draw scaled by other than a power of two may be rounded in another order.
    if base(name) in EXACT and args[1:] != (-2.0, 4.0):
        assert np.array_equal(ours, theirs)
        return
    if dtype == "int64":
        assert np.array_equal(ours, theirs)
        return
    rtol = {"float64": 1e-13, "float16": 1e-3, "bfloat16": 8e-3}.get(dtype, 5e-7)
    rtol *= 10 if name == "_standard_gamma" else 1  # some twenty roundings after one another
    np.testing.assert_allclose(
        ours.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=2 * rtol
    )


@pytest.mark.parametrize("count", [1000, 0])
def test_permutations_are_those_of_xla(count: int) -> None:
    where = {"shape": (count,), "dtype": "int64"}
    assert np.array_equal(draw("randperm", count, **where), xla_draw("randperm", count, **where))


@pytest.mark.parametrize(("count", "replacement"), [(1, False), (3, False), (3, True)])
def test_categories_are_those_of_xla(count: int, replacement: bool) -> None:
    rows = np.broadcast_to(WEIGHTS, (500, 6))
    where = {"shape": (500, count), "dtype": "int64"}
    ours = draw("multinomial", rows, count, replacement, **where)
    assert np.array_equal(ours, xla_draw("multinomial", rows, count, replacement, **where))


def test_dropout_masks_are_those_of_xla() -> None:
    x = np.linspace(1, 2, COUNT, dtype=np.float32)
    for ours, theirs in zip(
        draw("native_dropout", x, 0.3, True, results=2),
        xla_draw("native_dropout", x, 0.3, True, results=2),
        strict=True,
    ):
        assert np.array_equal(ours, theirs)
