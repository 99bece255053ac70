"""Compiling for XLA's CPU platform beside the program, in processes that yield to it.

In the program's process lowering a chunk holds Python's lock, and XLA's threads take its cores:
see docs/decisions.md. A worker gets the chunk, and gives what the cache stores.
"""

from __future__ import annotations

import os
import threading
from typing import Final, final

from fuse.backends.base import COMPILER_SECONDS, Backend, Chunk, CompileWorkers, NotCompiled
from fuse.backends.functions import Shipment, is_function
from fuse.backends.processes.process import Ended, Process, Processes
from fuse.backends.processes.serve import packed
from fuse.backends.registry import source_digest
from fuse.backends.written_once import is_written_once

NICE: Final = 10
"""Yields to the program; at the lowest priority a worker hardly starts where all cores are busy."""
MOST: Final = 4
"""Workers at most, and no more than half of the cores: each takes 0.4 GB."""
LOSSES: Final = 3
"""Workers that may be lost before no more are started."""
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def surroundings(backend: Backend) -> dict[str, str]:
    """What an executable depends on beside its chunk; two processes compile alike by the same."""
    return {**backend.fingerprint(), "sources": source_digest(backend)}


def _start() -> Process:
    kept = {name: text for name, text in os.environ.items() if name != "FUSE_TARGET"}
    kept |= {"JAX_PLATFORMS": "cpu", **dict.fromkeys(_THREADS, "1")}
    return Process("fuse.backends.xla.cpu.worker", [], kept, NICE)


@final
class CpuWorkers(CompileWorkers):
    """Workers start when a chunk needs one, and live as long as the program."""

    def __init__(self, backend: Backend, seconds: float = COMPILER_SECONDS) -> None:
        """Starts nothing; a chunk may take a worker ``seconds`` of processor time."""
        self._backend, self._seconds = backend, seconds
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._lost = 0
        self._closed = False
        self.processes = Processes(max(1, min(MOST, (os.cpu_count() or 1) // 2)), _start)

    def refusal(self, chunk: Chunk) -> str:  # noqa: D102
        if self._process != os.getpid():
            return "a forked process"
        if self._lost >= LOSSES:
            return "workers were lost"
        targets = [node.target for node in chunk.nodes if is_function(node.target)]
        if not all(map(is_written_once, targets)):
            return "a kernel that is this process's"
        return ""

    def compile(self, chunk: Chunk) -> bytes:  # noqa: D102
        options, around = dict(self._backend.options), surroundings(self._backend)
        try:
            functions = Shipment.of(chunk.nodes, "cpu")
            request = packed((chunk, functions, options, around))
        except Exception as error:
            raise NotCompiled("not picklable", f"{type(error).__name__}: {error}") from error
        try:
            with self.processes.one() as worker:
                if self._closed:
                    raise Ended("aborted", "the program ends")
                data, why = worker.ask(request, self._seconds)
        except Ended as error:
            raise self._loss(error) from error
        if why:
            raise NotCompiled("refused by a worker", why)
        made: bytes = data
        return made

    def _loss(self, error: Ended) -> NotCompiled:
        if self._closed:
            return NotCompiled("the program ends", str(error))
        with self._lock:
            self._lost += 1 if error.kind != "start" else LOSSES  # the next would not start either
        reasons = {"start": "a worker did not start", "time-out": "a worker took too long"}
        return NotCompiled(reasons.get(error.kind, "a worker ended"), str(error), lost=True)

    def close(self) -> None:  # noqa: D102
        self._closed = True
        if self._process == os.getpid():
            self.processes.close()
