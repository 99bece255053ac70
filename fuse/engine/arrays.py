"""What goes between host and device, and arrays of backends from before a switch."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch

from fuse.backends.base import Backend
from fuse.engine.failures import failure
from fuse.errors import describe
from fuse.families.family import Padding
from fuse.families.padded_array import PaddedArray, steps_of, with_room
from fuse.families.parts import Axes
from fuse.trace.source import user_line
from fuse.trace.spec import HALF_COMPLEX

MOST_SENT = 32 << 20
"""Bytes of what was copied to the device last that stay on the host, where sizes move."""


class _Sent:
    """What was copied to the device last, so that padding it reads nothing back."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[weakref.ref[Any], np.ndarray]] = {}
        self._bytes = 0

    def add(self, array: Any, value: np.ndarray) -> None:
        """Remember what an array was made of; the oldest are forgotten."""
        if value.nbytes > MOST_SENT // 4:
            return
        self.take(array)  # of an earlier one at this place
        self._values[id(array)] = weakref.ref(array), value
        self._bytes += value.nbytes
        while self._bytes > MOST_SENT:
            self._let_go(next(iter(self._values)))

    def take(self, array: Any) -> np.ndarray | None:
        """What it was made of, once."""
        known = self._let_go(id(array))
        return known[1] if known is not None and known[0]() is array else None

    def _let_go(self, name: int) -> tuple[weakref.ref[Any], np.ndarray] | None:
        known = self._values.pop(name, None)
        self._bytes -= 0 if known is None else known[1].nbytes
        return known


class Arrays:
    """Makes and reads arrays of the backend in use. ``earlier`` are backends that were in use."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.earlier: list[Backend] = []
        self._padded = False
        self._sent = _Sent()

    def use(self, backend: Backend) -> None:
        """Use another backend from now on; arrays are converted where they are next read."""
        if self._backend not in self.earlier:
            self.earlier.append(self._backend)
        self._backend = backend

    def prepare(self, leaves: list[Any], padding: Padding | None, device: int) -> list[Any]:
        """The arrays that a plan takes for ``leaves``; those that it takes otherwise are replaced.

        ``None`` stays. Arrays are padded by the host: no executable is made for a size.
        """
        if self.earlier:
            self.convert(leaves)
        if padding is None and not self._padded:
            return leaves
        wanted = [None] * len(leaves) if padding is None else padding.leaves
        arrays = list(leaves)
        for index, (array, axes) in enumerate(zip(leaves, wanted, strict=False)):
            given = array.steps if isinstance(array, PaddedArray) else None
            if array is not None and given != (None if axes is None else steps_of(axes)):
                leaves[index] = self._with_room(array, axes, device)
            arrays[index] = plain(leaves[index])
        self._padded = True
        return arrays

    def _with_room(self, array: Any, axes: Axes | None, device: int) -> Any:
        value = self._sent.take(array)
        if value is None:
            value = self.read(array)
        if axes is None:
            return self._backend.put(value, device)
        return PaddedArray.of(self._backend.put(with_room(value, axes), device), axes)

    def convert(self, leaves: list[Any]) -> None:
        """Replace arrays of earlier backends in ``leaves`` by copies; ``None`` stays."""
        for index, array in enumerate(leaves):
            if array is not None and not self._backend.owns(array):
                leaves[index] = self._backend.put(self.read(array), 0)

    def read(self, array: Any) -> np.ndarray:
        """The array on the host; it may be of a backend from before a switch."""
        if isinstance(array, PaddedArray):
            return array.value(self.read(array.array))
        owner = self._backend
        if not owner.owns(array):
            owner = next(backend for backend in self.earlier if backend.owns(array))
        return owner.get(array)

    def put(self, raw: np.ndarray, dtype: str, shape: tuple[int, ...], device: int) -> Any:
        """An array from flat bytes in a buffer's order, which it owns from now on.

        Raises ``TypeError`` for a dtype that the device has not, and PyTorch's
        ``OutOfMemoryError`` where the device's memory is full.
        """
        if dtype in HALF_COMPLEX or not hasattr(torch, dtype):
            raise TypeError(
                describe(
                    f"the tpu device has no dtype {dtype}",
                    source=user_line(),
                    hint="convert the tensor before moving it",
                )
            )
        value = raw.view(dtype).reshape(shape)
        try:
            array = self._backend.put(value, device)
            if self._padded:
                self._sent.add(array, value)
            return array
        except Exception as error:
            if not self._backend.ran_out(error):
                raise
            text = describe(f"copying to the device failed: {error}", source=user_line())
            raise failure(self._backend, text, error) from error


def plain(array: Any) -> Any:
    """The backend's array of one that may have room."""
    return array.array if isinstance(array, PaddedArray) else array
