"""What the tests of families share: padding that is poison, and calls at several lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import fuse
from fuse.families.padded_array import with_room
from fuse.families.parts import Axes
from tests.device.helpers import DEVICE


def poisoned(value: np.ndarray, axes: Axes) -> np.ndarray:
    """The value in an array of these axes, with what nobody may read behind it."""
    made = with_room(value, axes)
    padding = ~with_room(np.ones(value.shape, bool), axes)
    worst = {"b": True, "i": 77, "u": 77}.get(value.dtype.kind, np.nan)
    made[padding] = worst
    return made


def plans() -> int:
    return int(fuse.stats()["families"]["plans"])


def reasons() -> dict[str, int]:
    return dict(fuse.stats()["families"]["one_size_each"])


Unary = Callable[[torch.Tensor], Any]
LENGTHS = (5, 6, 9, 7, 18, 33)


def outcome(function: Unary, device: Any, length: int) -> Any:
    values = torch.Generator().manual_seed(length)
    return function(torch.randn(3, length, 4, generator=values).to(device))


def agrees(function: Unary) -> None:
    for length in LENGTHS:
        expected, found = (outcome(function, device, length) for device in ("cpu", DEVICE))
        if not isinstance(expected, tuple):
            expected, found = (expected,), (found,)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5, equal_nan=True)
