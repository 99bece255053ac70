"""XLA's CPU device as a platform that is not the host: ``FUSE_BACKEND=tests.accelerator:create``.

What a GPU or TPU does differently is enforced: arrays lie in a memory of the device's own, which is
small and runs out; reading one where it lies is an error, copies are explicit and take time, no
kernel of the host computes anything, and chunks run on no thread that a call could wait for. The
numbers are XLA's for this CPU. Whoever writes a backend can run the device's tests on it so.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, final
from weakref import WeakKeyDictionary

import jax
import numpy as np

from fuse.backends.xla import dispatch
from fuse.backends.xla.backend import XlaBackend
from fuse.backends.xla.platform import Platform

MEMORY = int(os.environ.get("FUSE_TEST_ACCELERATOR_BYTES", 512 << 20))
"""Bytes of the device's memory."""
LATENCY, BYTES_A_SECOND = 20e-6, 16e9
"""What a copy between host and device takes: as long as over PCIe 4."""


class HostReadError(RuntimeError):
    """The host read memory of the device where it lies."""


class Memory:
    """The device's memory: how much of it is taken. Safe to share by threads."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        return self._taken

    def take(self, nbytes: int) -> None:
        """Raises what JAX raises where there is not so much."""
        with self._lock:
            if self._taken + nbytes > self.total:
                raise jax.errors.JaxRuntimeError(
                    f"RESOURCE_EXHAUSTED: Out of memory while trying to allocate {nbytes} bytes; "
                    f"{self._taken} of {self.total} are taken."
                )
            self._taken += nbytes

    def give(self, nbytes: int) -> None:
        with self._lock:
            self._taken -= nbytes


@final
class DeviceArray:
    """An array in the device's memory. Says what it is, and not what is in it."""

    __slots__ = ("_memory", "dtype", "nbytes", "place", "shape", "__weakref__")

    _memory: Memory | None

    def __init__(self, place: Any, memory: Memory) -> None:
        """``place`` is JAX's array, or a row of one: for the backend alone."""
        if isinstance(place, tuple):
            whole = place[0].array
            self.shape, self.dtype = whole.shape[1:], whole.dtype
        else:
            self.shape, self.dtype = place.shape, place.dtype
        self.nbytes = int(np.prod(self.shape)) * self.dtype.itemsize
        memory.take(self.nbytes)
        self.place, self._memory = place, memory

    def __del__(self) -> None:
        self.free()

    def free(self) -> None:
        """Give its memory back, once: it has been let go of, or donated."""
        memory = getattr(self, "_memory", None)
        if memory is not None:
            memory.give(self.nbytes)
            self._memory = None

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise HostReadError(
            f"{self.dtype}{list(self.shape)} is in the accelerator's memory, where the host must "
            "not read it: Backend.get copies it"
        )

    __array__ = __buffer__ = __dlpack__ = __dlpack_device__ = _refuse
    __array_interface__ = __cuda_array_interface__ = property(_refuse)
    __len__ = __iter__ = __getitem__ = __float__ = __int__ = __bool__ = _refuse
    unsafe_buffer_pointer = block_until_ready = item = tolist = _refuse


def copy_takes(nbytes: int) -> None:
    """The time of a copy between host and device; other threads go on."""
    time.sleep(LATENCY + nbytes / BYTES_A_SECOND)


@dataclass(frozen=True)
class AcceleratorPlatform(Platform):
    """Without kernels of its own: every operation is XLA's."""

    name: str = "accelerator"

    def fingerprint(self) -> dict[str, str]:
        return {"memory": "the accelerator's own"}


@final
class AcceleratorBackend(XlaBackend):
    """XLA's backend, as on a platform that it does not know."""

    def __init__(self, memory: int = MEMORY) -> None:
        super().__init__()
        self.platform = AcceleratorPlatform()
        self.memory = Memory(memory)
        self.copied = self.asked = self.waited = 0
        self._pending: WeakKeyDictionary[DeviceArray, Future[np.ndarray]] = WeakKeyDictionary()
        self._copier = ThreadPoolExecutor(1)

    def device_name(self) -> str:
        return "simulated accelerator"

    def shares_host_memory(self) -> bool:
        return False

    def memory_bytes(self, device: int) -> int:
        return self.memory.total

    def memory_in_use(self, device: int) -> int:
        return self.memory.taken

    def _held(self, place: Any) -> DeviceArray:
        return DeviceArray(place, self.memory)

    def execute(self, executable: Any, scalars: bytes, arrays: Sequence[Any]) -> list[Any]:
        places = [array.place for array in arrays]
        results = super().execute(executable, scalars, places)
        for array in arrays:
            if isinstance(array.place, jax.Array) and array.place.is_deleted():
                array.free()
        return [self._held(one) for one in results]

    def put(self, data: np.ndarray, device: int) -> Any:
        self._copies(data.nbytes)
        return self._held(dispatch.placed(np.array(data), self.devices[device]))

    def ask(self, arrays: list[Any]) -> None:
        for array in arrays:
            self.asked += 1
            self._pending[array] = self._copier.submit(self._copied, array.place)

    def get(self, array: Any) -> np.ndarray:
        """What was asked for before is only waited for, and kept, as JAX keeps it."""
        pending = self._pending.get(array)
        if pending is None:
            return self._copied(array.place)
        self.waited += 1
        return pending.result()

    def _copied(self, place: Any) -> np.ndarray:
        found = np.array(place)
        self._copies(found.nbytes)
        found.flags.writeable = False
        return found

    def _copies(self, nbytes: int) -> None:
        self.copied += nbytes
        copy_takes(nbytes)

    def alone(self, array: Any) -> Any:
        return super().alone(array.place)

    def owns(self, array: Any) -> bool:
        return isinstance(array, DeviceArray)

    def adopted(self, array: Any, device: int) -> Any:
        return self._held(super().adopted(array, device))

    def wait(self, arrays: list[Any]) -> None:
        super().wait([array.place for array in arrays])

    def done(self, arrays: list[Any]) -> bool:
        return super().done([array.place for array in arrays])


@functools.lru_cache(maxsize=1)
def create() -> AcceleratorBackend:
    """The backend's one instance; it is called ``xla``, as on every other platform."""
    return AcceleratorBackend()
