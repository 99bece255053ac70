"""Arrays with room behind their values: they stay so between the traces of a family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuse.families.parts import Axes, shape_of, size_of

Steps = tuple[tuple[int, int], ...]
"""The size and the room of every part, outermost first."""


def steps_of(axes: Axes) -> Steps:
    """What of an array's axes says how its padding lies."""
    return tuple((part.size, part.room) for axis in axes for part in axis)


@dataclass(frozen=True, slots=True, eq=False)
class PaddedArray:
    """A backend's array, and where in it the value is.

    Attributes:
        array: at the bucket's size.
        steps: how its padding lies.
        shape: the value's.
    """

    array: Any
    steps: Steps
    shape: tuple[int, ...]

    @staticmethod
    def of(array: Any, axes: Axes) -> PaddedArray:
        """An array of these axes."""
        return PaddedArray(array, steps_of(axes), tuple(map(size_of, axes)))

    def value(self, host: np.ndarray) -> np.ndarray:
        """The value of ``host``, which is a copy of the array."""
        whole = host.reshape([room for _, room in self.steps])
        return whole[tuple(slice(size) for size, _ in self.steps)].reshape(self.shape)


def with_room(value: np.ndarray, axes: Axes) -> np.ndarray:
    """A value in an array of these axes, zeros behind it."""
    steps = steps_of(axes)
    whole = np.zeros([room for _, room in steps], value.dtype)
    whole[tuple(slice(size) for size, _ in steps)] = value.reshape([size for size, _ in steps])
    return whole.reshape(shape_of(axes))
