"""The interface of a backend: what the engine asks of XLA, NumPy, or one still to come.

A backend is chosen by name in ``registry``; it is abstract here and final where it is
implemented. Arrays are the backend's own objects; the engine only passes them on.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from fuse.backends.estimates import AS_IT_IS, Estimate, Machine, Variant
from fuse.errors import ConfigError, UnsupportedError, describe
from fuse.trace.borders import Borders
from fuse.trace.node import Leaf, Node

COMPILER_SECONDS: Final = 300.0
"""Processor time that a target's compiler may take for one program, and the longest that it may
stand still; a large chunk of a convolutional net takes half a minute."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The nodes that become one executable.

    Attributes:
        nodes: in execution order; every value they read is an input or made before.
        inputs: arrays the executable takes, in order.
        outputs: value numbers of the arrays it returns, in order.
        donated: positions in ``inputs`` whose memory the executable may reuse.
        scalars: 64-bit words of the packed array of varying numbers.
        apart: positions among ``donated`` of inputs that other chunks read or make: a backend
            that keeps several arrays in one had better leave these alone.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Leaf, ...]
    outputs: tuple[int, ...]
    donated: tuple[int, ...]
    scalars: int
    apart: tuple[int, ...] = ()

    def __str__(self) -> str:
        head = (
            f"chunk({', '.join(map(str, self.inputs))}; scalars={self.scalars}; "
            f"donated={list(self.donated)}) -> {', '.join(f'%{v}' for v in self.outputs)}"
        )
        return "\n".join([head, *(f"  {node}" for node in self.nodes)])


class Target(ABC):
    """A machine that is not here, whose compiler is: chunks are compiled for it, and not run.

    Safe to share by threads. What the compiler does to itself is a refusal, never an exception.
    """

    name: str
    machine: Machine
    kind: str = "TPU"
    """What a device of it is called in a sentence."""

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """Labelled fields that an estimate depends on beside the program; starts no compiler."""

    @abstractmethod
    def fingerprint(self) -> dict[str, str]:
        """What ``Backend.fingerprint`` says on a host of the target; starts the compiler.

        Raises ``ConfigError`` where the compiler does not know the target.
        """

    def borders(self) -> Borders:
        """Where ``Backend.borders`` has traces cut on a host of the target."""
        return Borders()

    @abstractmethod
    def reject(self, node: Node) -> str | None:
        """Why ``Backend.reject`` refuses ``node`` on a host of the target, or ``None``."""

    @abstractmethod
    def compile(self, chunk: Chunk, variant: Variant = AS_IT_IS) -> tuple[Estimate, bytes]:
        """The compiler's estimate, and the executable as ``Backend.dump`` gives it there.

        Waits for it, for a bounded time. Without bytes where the compiler refuses.
        """

    @abstractmethod
    def close(self) -> None:
        """End the compiler's processes; what is being compiled ends with an error."""


class NotCompiled(Exception):
    """A worker did not compile a chunk, which is no fault of the chunk's.

    Attributes:
        reason: why, in the few words that it is counted by.
        lost: whether the worker, or all of them, are gone: worth saying to the user.
    """

    def __init__(self, reason: str, text: str, lost: bool = False) -> None:
        super().__init__(text)
        self.reason, self.lost = reason, lost


class CompileWorkers(ABC):
    """Processes beside the program's that compile its chunks, so that it keeps its locks and cores.

    Safe to share by threads.
    """

    @abstractmethod
    def refusal(self, chunk: Chunk) -> str:
        """Why a chunk had better be compiled in the program's process; empty where it had not."""

    @abstractmethod
    def compile(self, chunk: Chunk) -> bytes:
        """The executable as ``Backend.dump`` gives it; waits for a worker, for a bounded time.

        Raises ``NotCompiled``.
        """

    @abstractmethod
    def close(self) -> None:
        """End the processes, and start no more; whoever waits for one gets ``NotCompiled``."""


class Backend(ABC):
    """Compiles and runs chunks, and moves arrays.

    This is all that engine, planner and recorder ask of a backend; what is not abstract has an
    answer that is right for most.

    Attributes:
        name: what ``fuse.get_backend`` says.
    """

    name: str
    options: Mapping[str, str | bool | int | float] = {}
    """What the user adds to the compiler's options; see ``compile_with``."""

    @abstractmethod
    def fingerprint(self) -> dict[str, str]:
        """Labelled fields that a compiled chunk depends on beside the program itself."""

    def sources(self) -> Sequence[Path]:
        """The files whose text decides what an executable is: all Python files beside its own."""
        return sorted(Path(inspect.getfile(type(self))).parent.rglob("*.py"))

    def setting(self) -> str:
        """What of ``fingerprint`` the program may change while it runs; asked at every cut."""
        return ""

    @abstractmethod
    def device_count(self) -> int:
        """How many devices PyTorch sees."""

    def device_name(self) -> str:
        """The platform's own name of its devices."""
        return "host"

    @abstractmethod
    def shares_host_memory(self) -> bool:
        """Whether arrays lie in the host's memory, so that its kernels can run on them."""

    def wakes_host_threads(self) -> bool:
        """Whether chunks run on threads of the host, which may take longer to wake than a chunk."""
        return False

    def runs_programs(self) -> bool:
        """Whether it runs ``fuse.backends.functions.Program``, as kernels and padding are."""
        return False

    def borders(self) -> Borders:
        """Where the planner is to cut traces."""
        return Borders()

    def start(self) -> None:  # noqa: B027  (most have nothing to start)
        """Make ready what compiling needs, such as kernels to be built; may be called again."""

    def compile_with(self, options: Mapping[str, str | bool | int | float]) -> None:
        """Compile with these options of the compiler from now on; part of ``fingerprint``.

        Raises ``UnsupportedError`` where nothing is compiled.
        """
        if options:
            raise UnsupportedError(describe(f"the {self.name} backend compiles nothing"))

    def give_back(self) -> None:  # noqa: B027  (most keep nothing)
        """Let the system have the host's memory that is free: many executables have been freed."""

    def memory_bytes(self, device: int) -> int:
        """Bytes that one device may use: the host's memory, where it has none of its own."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def memory_in_use(self, device: int) -> int | None:
        """Bytes of a device's memory that are taken, where the runtime counts them."""
        return None

    def collector(self) -> tuple[Callable[..., object], Callable[[], object]] | None:
        """The function among ``gc.callbacks`` that is the runtime's, and the one it calls.

        An interrupt that meets a function of Python's there is printed and lost; the second one is
        none. ``None`` where there is nothing to replace.
        """
        return None

    @abstractmethod
    def has_rule(self, overload: str) -> bool:
        """Whether a rule computes this functional overload."""

    @abstractmethod
    def reject(self, node: Node) -> str | None:
        """Why the backend cannot run ``node``, or ``None`` if it can. Nothing is executed."""

    def presumes(self, node: Node) -> bool:
        """Whether ``reject`` is known to be ``None``, as far as tables say that, at once.

        A mistake costs a chunk that is not compiled and streams that are recorded again.
        """
        return False

    @abstractmethod
    def static_places(self, node: Node) -> tuple[int, ...]:
        """Places of varying numbers that must stay constants of the program."""

    @abstractmethod
    def compile(self, chunk: Chunk) -> Any:
        """Return an executable for ``chunk``."""

    def workers(self) -> CompileWorkers | None:
        """What compiles chunks that the program does not wait for, or ``None``: its own threads."""
        return None

    def target(self, name: str, seconds: float = COMPILER_SECONDS) -> Target:
        """The target called ``name``: see ``Target``. Its compiler has so long for one program.

        Raises ``ConfigError`` for one that there is not, and where its compiler is not installed.
        """
        raise ConfigError(
            describe(
                f"the {self.name} backend compiles for no target, so not for {name!r}",
                hint="use the xla backend",
            )
        )

    @abstractmethod
    def execute(self, executable: Any, scalars: bytes, arrays: Sequence[Any]) -> list[Any]:
        """Run on input arrays in chunk order; returns output arrays, perhaps still computing."""

    def on(self, executable: Any, device: int) -> Any:
        """The executable for another device than the first: for one device, or in the host's
        memory, itself.
        """
        return executable

    @abstractmethod
    def dump(self, executable: Any) -> bytes | None:
        """The executable as bytes for a cache; ``None`` where it cannot be stored."""

    @abstractmethod
    def load(self, data: bytes) -> Any:
        """The inverse of ``dump``; raises ``ValueError`` for bytes it does not know."""

    @abstractmethod
    def put(self, data: np.ndarray, device: int) -> Any:
        """An array holding a copy of host ``data``, which the caller may change afterwards."""

    @abstractmethod
    def get(self, array: Any) -> np.ndarray:
        """The array on the host, C-contiguous, read-only; waits for it."""

    def ask(self, arrays: list[Any]) -> None:  # noqa: B027  (of the host's memory nothing is copied)
        """Begin to copy arrays to the host, where ``get`` is to find them; returns at once."""

    def refuses(self, error: Exception) -> bool:
        """Whether an error that ``compile`` raised is about the program: it will be raised again.

        Not where memory, a disk or time ran out: that may be another time.
        """
        passing = isinstance(error, (MemoryError, OSError, NotCompiled))
        return not passing and not self.ran_out(error)

    def ran_out(self, error: BaseException) -> bool:
        """Whether an error that the backend raised says that the device's memory is full."""
        return False

    def alone(self, array: Any) -> Any:
        """One of this backend's arrays as what its runtime of several processes takes."""
        return array

    @abstractmethod
    def owns(self, array: object) -> bool:
        """Whether ``array`` is one of this backend's own."""

    def exported(self, array: Any) -> Any:
        """One of its arrays as the library's own kind, which others can read by DLPack."""
        return array

    def adopted(self, array: Any, device: int) -> Any:
        """An array of JAX's as one of the backend's on a device: copied, or the same."""
        return self.put(np.asarray(array), device)

    @abstractmethod
    def wait(self, arrays: list[Any]) -> None:
        """Return once every one of ``arrays`` has been computed; raises what failed."""

    def done(self, arrays: list[Any]) -> bool:
        """Whether ``wait`` would return at once."""
        return True
