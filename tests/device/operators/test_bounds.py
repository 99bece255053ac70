"""Bounds of drawn integers that a dtype cannot hold: the CPU's warnings and errors, each time."""

from __future__ import annotations

import warnings

import pytest
import torch

from tests.device.helpers import DEVICE

BOUNDS = ((-(2**30) - 1, 2**25), (0, 2**30), (2**24 + 1,), (-3, 5), (-5, None))


def said(device: str, dtype: torch.dtype, bounds: tuple[int | None, ...]) -> list[str]:
    """The warnings, and the error."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        error = ""
        try:
            torch.empty(3, dtype=dtype, device=device).random_(*bounds)
        except RuntimeError as raised:
            error = str(raised)
    return [*(str(one.message) for one in found), error]


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8])
def test_bounds_that_a_dtype_cannot_hold(dtype: torch.dtype, bounds: tuple[int | None, ...]):
    expected = said("cpu", dtype, bounds)
    for _ in range(3):
        assert said(DEVICE, dtype, bounds) == expected
