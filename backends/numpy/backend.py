"""NumPy: interprets the chunks that other backends compile, one plain rule an operation."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import ml_dtypes
import numpy as np

import fuse.backends.numpy.rules  # noqa: F401  (fills the table of rules)
from fuse.backends.base import Backend, Chunk
from fuse.backends.decomposed import MOST_SIGNATURES, Decompositions
from fuse.backends.functions import is_function
from fuse.backends.numpy.interpret import refusal, run_chunk
from fuse.backends.numpy.rules.registry import RULES
from fuse.backends.subnormals import FlushedSubnormals
from fuse.bounded import Bounded
from fuse.trace.node import HostArg, Node, NumberArg
from fuse.trace.signature import signature
from fuse.trace.spec import HALF_COMPLEX


class NumpyBackend(Backend):
    """Final. One device; an array is a C-contiguous ``np.ndarray`` that nobody writes to.

    An executable is the chunk itself. Donation needs nothing: an input's memory is never
    reused, and is freed when its last holder lets it go.
    """

    name = "numpy"

    def __init__(self) -> None:
        self.decompositions = Decompositions(self.has_rule)
        self._rejections: Bounded[str, str | None] = Bounded(MOST_SIGNATURES)

    def fingerprint(self) -> dict[str, str]:  # noqa: D102
        versions = {"numpy": np.__version__, "ml_dtypes": ml_dtypes.__version__}
        return {"backend": self.name, **versions}

    def device_count(self) -> int:  # noqa: D102
        return 1

    def runs_programs(self) -> bool:  # noqa: D102
        return True

    def shares_host_memory(self) -> bool:  # noqa: D102
        return True

    def has_rule(self, overload: str) -> bool:  # noqa: D102
        return overload in RULES or is_function(overload)

    def reject(self, node: Node) -> str | None:
        """Ask the rules involved, once for each distinct signature."""
        return self._rejections.memo(signature(node), lambda: self._rejection(node))

    def _rejection(self, node: Node) -> str | None:
        missing = sorted(node.dtypes() & HALF_COMPLEX)
        if missing:
            return f"NumPy has no {', '.join(missing)}"
        reason = None if self.has_rule(node.target) else self.decompositions.reason(node)
        return reason or refusal(node, self.decompositions.get)

    def static_places(self, node: Node) -> tuple[int, ...]:
        """None for a node with a rule; a decomposition is found for the numbers it was given."""
        if self.has_rule(node.target):
            return ()
        return tuple(
            argument.place
            for argument in node.args
            if isinstance(argument, (HostArg, NumberArg)) and argument.place is not None
        )

    def compile(self, chunk: Chunk) -> Chunk:  # noqa: D102
        return chunk

    def execute(  # noqa: D102
        self, executable: Chunk, scalars: bytes, arrays: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        with FlushedSubnormals():
            return run_chunk(executable, scalars, arrays, self.decompositions.get)

    def dump(self, executable: Chunk) -> bytes | None:
        """``None``: there is nothing a later process would save by reading it."""
        return None

    def load(self, data: bytes) -> Chunk:  # noqa: D102
        raise ValueError("the NumPy backend stores no executables")

    def put(self, data: np.ndarray, device: int) -> np.ndarray:  # noqa: D102
        return np.array(data, order="C", copy=True)

    def get(self, array: np.ndarray) -> np.ndarray:  # noqa: D102
        found = array.view()
        found.flags.writeable = False
        return found

    def owns(self, array: object) -> bool:  # noqa: D102
        return isinstance(array, np.ndarray)

    def wait(self, arrays: list[np.ndarray]) -> None:
        """Return at once: ``execute`` computes before it returns."""


@functools.lru_cache(maxsize=1)
def create() -> NumpyBackend:
    """The backend's one instance."""
    return NumpyBackend()
