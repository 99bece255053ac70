"""Arrays without data: a program is recorded, planned and "run", and nothing is computed or held.

What PyTorch's fake tensors are to a call, this is to the device: shapes and dtypes are right, and
memory takes nothing, so a step of a model of any size can be recorded on a laptop. Traces are
planned as on a TPU. A number that the program reads is a stand-in; more than one has none.
"""

from __future__ import annotations

import functools
import math
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import jax
import numpy as np

from fuse.backends.base import Chunk
from fuse.backends.xla.backend import XlaBackend
from fuse.backends.xla.tpu.platform import TpuPlatform
from fuse.errors import FuseError, describe
from fuse.trace.node import Node, layouts_of
from fuse.trace.source import user_line
from fuse.trace.spec import Layout

MEMORY: Final = 1 << 50
"""Bytes of the device's memory: enough that nothing runs out. What a chip has is the target's."""
KEPT: Final = 4096
"""Bytes up to which what comes from the host is kept: what ranks compare with each other."""
STAND_INS: Final = {"b": False, "i": 1, "u": 1, "f": 1.0, "c": 1.0}
"""The number that is read, by NumPy's kind of dtype: a loss of 1.0, one element, no overflow."""


@final
class FakeArray:
    """What an array is; what is in it only where it is small and came from the host."""

    __slots__ = ("__weakref__", "_deleted", "dtype", "shape", "value")

    def __init__(
        self, shape: tuple[int, ...], dtype: str | np.dtype[Any], value: np.ndarray | None = None
    ) -> None:
        """``value`` has the shape and the dtype."""
        self.shape, self.dtype, self.value = shape, np.dtype(dtype), value
        self._deleted = False

    @property
    def nbytes(self) -> int:
        """Bytes that its elements would take."""
        return math.prod(self.shape) * self.dtype.itemsize

    def is_deleted(self) -> bool:
        """Whether a chunk took its memory over, as JAX says it."""
        return self._deleted

    def delete(self) -> None:
        """Its memory is another's from now on."""
        self._deleted = True


@dataclass(frozen=True, slots=True)
class FakeExecutable:
    """What a chunk returns, and which of its inputs it takes over."""

    results: tuple[Layout, ...]
    donated: tuple[int, ...]


@final
class FakeBackend(XlaBackend):
    """XLA's rules and a TPU's plans, with nothing behind them."""

    name = "fake"

    def __init__(self) -> None:
        jax.config.update("jax_platforms", "cpu")  # else JAX would look for a TPU of ours
        super().__init__()
        self.platform = TpuPlatform()
        self._reads: Counter[str] = Counter()
        self._lock = threading.Lock()

    def device_count(self) -> int:
        """One: a rank has one device."""
        return 1

    def device_name(self) -> str:  # noqa: D102
        return "no device: shapes only"

    def shares_host_memory(self) -> bool:  # noqa: D102
        return False

    def runs_programs(self) -> bool:
        """Not: to pad arrays their values are read."""
        return False

    def memory_bytes(self, device: int) -> int:  # noqa: D102
        return MEMORY

    def presumes(self, node: Node) -> bool:
        """Nothing: a stream is recorded once, with verdicts."""
        return False

    def compile(self, chunk: Chunk) -> Any:  # noqa: D102
        known = layouts_of(chunk.inputs, chunk.nodes)
        return FakeExecutable(tuple(known[value] for value in chunk.outputs), chunk.donated)

    def execute(self, executable: Any, scalars: bytes, arrays: Sequence[Any]) -> list[Any]:  # noqa: D102
        for at in executable.donated:
            arrays[at].delete()
        return [FakeArray(one.shape, one.dtype) for one in executable.results]

    def on(self, executable: Any, device: int) -> Any:  # noqa: D102
        return executable

    def dump(self, executable: Any) -> bytes | None:
        """Never stored: making it again takes less."""
        return None

    def put(self, data: np.ndarray, device: int) -> Any:  # noqa: D102
        kept = np.array(data) if data.nbytes <= KEPT else None
        return FakeArray(data.shape, data.dtype, kept)

    def ask(self, arrays: list[Any]) -> None:
        """Nothing is there to be copied."""

    def get(self, array: Any) -> np.ndarray:
        """What came from the host, or a stand-in for one number; raises ``FuseError`` for more."""
        if array.value is not None:
            return np.array(array.value)
        line = user_line()
        if math.prod(array.shape) > 1:
            raise FuseError(
                describe(
                    f"{array.dtype}{list(array.shape)} is read, and a fake run has no values",
                    source=line,
                    hint="read single numbers (a loss is 1.0), or leave the reading out of the run",
                )
            )
        with self._lock:
            self._reads[line] += 1
        found = np.full(array.shape, STAND_INS.get(array.dtype.kind, 1), array.dtype)
        found.flags.writeable = False
        return found

    def forget_reads(self) -> None:
        """A new run begins."""
        with self._lock:
            self._reads.clear()

    def reads(self) -> dict[str, int]:
        """The user's lines that were answered by a stand-in, and how often."""
        with self._lock:
            return dict(self._reads)

    def alone(self, array: Any) -> Any:  # noqa: D102
        return array

    def owns(self, array: object) -> bool:  # noqa: D102
        return isinstance(array, FakeArray)

    def exported(self, array: Any) -> Any:  # noqa: D102
        raise FuseError(describe("a fake run has no values that another library could read"))

    def adopted(self, array: Any, device: int) -> Any:  # noqa: D102
        return FakeArray(array.shape, array.dtype)

    def wait(self, arrays: list[Any]) -> None:
        """Nothing computes."""

    def done(self, arrays: list[Any]) -> bool:  # noqa: D102
        return True

    def workers(self) -> None:
        """Nothing is compiled."""
        return


@functools.lru_cache(maxsize=1)
def create() -> FakeBackend:
    """The backend's one instance."""
    return FakeBackend()
