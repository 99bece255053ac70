"""A worker of ``workers.CpuWorkers``: compiles one chunk after the other as the program would."""

from __future__ import annotations

from typing import Any

from fuse.backends.base import Backend, Chunk
from fuse.backends.functions import Shipment
from fuse.backends.registry import get_backend
from fuse.backends.xla.cpu.workers import surroundings

ERROR_LENGTH = 2000
Request = tuple[Chunk, Shipment, dict[str, Any], dict[str, str]]


class Compiler:
    """Answers with the executable as the cache stores it, or with why there is none."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def ready(self) -> dict[str, str]:
        """What executables made here depend on."""
        return surroundings(self._backend)

    def answer(self, request: Request) -> tuple[bytes, str]:
        """The bytes, or none and a text; what is the compiler's own fault the program finds too."""
        chunk, functions, options, expected = request
        try:
            functions.unpack()
            if dict(self._backend.options) != options:
                self._backend.compile_with(options)
            found = surroundings(self._backend)
            other = sorted(name for name, _ in found.items() ^ expected.items())
            if other:
                return b"", f"a worker has another {', '.join(dict.fromkeys(other))}"
            data = self._backend.dump(self._backend.compile(chunk))
        except Exception as error:  # noqa: BLE001  (it is the answer)
            return b"", f"{type(error).__name__}: {error}"[:ERROR_LENGTH]
        return (b"", "the executable cannot be stored") if data is None else (data, "")


def create() -> Compiler:
    """The compiler, with the kernels that programs may call."""
    backend = get_backend("xla")
    backend.start()
    return Compiler(backend)
