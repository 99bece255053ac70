"""What goes between host and device, and arrays of backends from before a switch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fuse.backends.base import Backend
from fuse.engine.failures import failure
from fuse.errors import describe
from fuse.trace.source import user_line
from fuse.trace.spec import HALF_COMPLEX


class Arrays:
    """Makes and reads arrays of the backend in use. ``earlier`` are backends that were in use."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.earlier: list[Backend] = []

    def use(self, backend: Backend) -> None:
        """Use another backend from now on; arrays are converted where they are next read."""
        if self._backend not in self.earlier:
            self.earlier.append(self._backend)
        self._backend = backend

    def convert(self, leaves: list[Any]) -> None:
        """Replace arrays of earlier backends in ``leaves`` by copies; ``None`` stays."""
        for index, array in enumerate(leaves):
            if array is not None and not self._backend.owns(array):
                leaves[index] = self._backend.put(self.read(array), 0)

    def read(self, array: Any) -> np.ndarray:
        """The array on the host; it may be of a backend from before a switch."""
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
        try:
            return self._backend.put(raw.view(dtype).reshape(shape), device)
        except Exception as error:
            if not self._backend.ran_out(error):
                raise
            text = describe(f"copying to the device failed: {error}", source=user_line())
            raise failure(self._backend, text, error) from error
