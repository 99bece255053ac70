"""Finds or compiles every chunk of a plan, in parallel; waits for that, or does not.

``FUSE_TIER=compiled`` returns executables and raises what the compiler says at the cut.
Any other returns what is in memory and futures of the rest: until one is
done its chunk runs uncompiled, and where the compiler fails it goes on so, after one warning.
They are made in the backend's worker processes where it has any, those that save most first.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from fuse.backends.base import Backend, Chunk
from fuse.bounded import Bounded
from fuse.cache.key import Key
from fuse.engine.beside import Beside
from fuse.engine.executables import Executables, Found
from fuse.engine.pool import Pool, cores
from fuse.engine.progress import Progress
from fuse.engine.uncompiled import Uncompiled, lack
from fuse.errors import ExecutionError, warn_or_print
from fuse.trace.node import Node

Wanted = Mapping[str, tuple[Chunk, Key]]
"""The different chunks of a plan by the digests of their keys."""
MOST_BEHIND = 4
"""Chunks at once that nobody waits for; and no more than half of the cores."""
AN_OPERATION = 1e-5
"""Seconds that an operation of a chunk takes uncompiled, where nobody knows better."""
MOST_REPORTED = 1024
"""Chunks whose failure is remembered, so that it is said once."""


@dataclass(slots=True)
class Counts:
    """What happened in the background: executables, and runs of chunks without one.

    ``workers`` counts executables of worker processes; ``here``, by the reason, the others of a
    backend that has workers.
    """

    compiled: int = 0
    failed: int = 0
    uncompiled_chunks: int = 0
    workers: int = 0
    here: Counter[str] = field(default_factory=Counter)


class Compiler:
    """One an engine. What is waited for takes a thread a core, or one less in the background."""

    def __init__(self, executables: Executables, background: bool) -> None:
        """``background`` chooses between the two ways; no thread starts yet.

        ``waits`` chooses the first for a while. ``doubts`` says of a chunk that could not be
        compiled whether an operator of it is refused: its streams are recorded again.
        """
        self.background = background
        self._beside = Beside(self._note)
        self.waits = False
        self.doubts: Callable[[Chunk, ExecutionError], bool] = lambda chunk, error: False
        self.counts = Counts()
        self._executables = executables
        self._waited: Pool[Found] = Pool(cores() - 1 if background else cores())
        self._pool: Pool[Found] = Pool(min(MOST_BEHIND, cores() // 2), self._beside.close)
        self._uncompiled = Uncompiled()
        self._lock = threading.Lock()
        # Plans hold their futures, and so what these hold: what is forgotten is freed.
        self._started: weakref.WeakValueDictionary[str, Future[Found]]
        self._started = weakref.WeakValueDictionary()
        self._reported: Bounded[str, None] = Bounded(MOST_REPORTED)

    def find(
        self, backend: Backend, wanted: Wanted, weights: Mapping[str, float] | None = None
    ) -> dict[str, Found | Future[Found]]:
        """Every chunk's executable, or in the background the future of one.

        ``weights`` are the seconds that the program spends in a chunk at each run of it while it
        is not compiled, by digest: the largest is compiled first. Without it they are guessed.

        Raises:
            ExecutionError: the backend cannot compile a chunk, and the plan waits for it.
            CacheMissError: there is none, and the cache is in mode ``only``.
        """
        self._say_losses()
        found: dict[str, Found | Future[Found]] = {}
        missing: dict[str, tuple[Chunk, Key]] = {}
        for digest, (chunk, key) in wanted.items():
            if self._executables.cache.origin(key) is not None:
                found[digest] = self._executables.find(backend, chunk, key)
            elif self._goes_on_without(backend, chunk):
                weight = (weights or {}).get(digest, 0.0)
                found[digest] = self._start(backend, chunk, key, weight)
            else:
                missing[digest] = (chunk, key)
        found.update(self._wait(backend, missing))
        return found

    def _goes_on_without(self, backend: Backend, chunk: Chunk) -> bool:
        """Whether the chunk runs uncompiled meanwhile: on the host's threads."""
        return self._waits_for_none(backend) and self._uncompiled.refusal(chunk) is None

    def can_go_on(self, backend: Backend, node: Node) -> bool:
        """Whether ``node`` runs uncompiled until its chunk is compiled, and if it never is."""
        return self._waits_for_none(backend) and lack(node) is None

    def _waits_for_none(self, backend: Backend) -> bool:
        # As tiers are chosen: NumPy has nothing to compile, and is to compute by itself.
        return self.background and not self.waits and backend.wakes_host_threads()

    def _wait(self, backend: Backend, missing: Wanted) -> Mapping[str, Found]:
        if not missing:
            return {}
        with Progress(len(missing)) as progress:

            def find(pair: tuple[Chunk, Key]) -> Found:
                chunk, key = pair
                progress.started(key.label)
                try:
                    return self._executables.find(backend, chunk, key)
                except ExecutionError as error:
                    # Its operations are run one by one, and recorded anew the next time.
                    self.doubts(chunk, error)
                    raise
                finally:
                    progress.finished(key.label)

            if len(missing) == 1:
                return {digest: find(pair) for digest, pair in missing.items()}
            jobs = {
                digest: self._waited.submit(lambda pair=pair: find(pair))  # type: ignore[misc]
                for digest, pair in missing.items()
            }
            return {digest: job.result() for digest, job in jobs.items()}

    def _start(
        self, backend: Backend, chunk: Chunk, key: Key, weight: float = 0.0
    ) -> Future[Found]:
        future = self._started.get(key.digest)
        if future is None:
            weight = weight or AN_OPERATION * len(chunk.nodes)
            future = self._pool.submit(lambda: self._made(backend, chunk, key), weight)
            self._started[key.digest] = future
        return future

    def _made(self, backend: Backend, chunk: Chunk, key: Key) -> Found:
        try:
            found = self._executables.find(backend, chunk, key, self._beside)
        except ExecutionError as error:
            if self.doubts(chunk, error):
                raise RefusedError(str(error)) from error
            raise
        with self._lock:
            self.counts.compiled += 1
        return found

    def _note(self, reason: str) -> None:
        with self._lock:
            if reason:
                self.counts.here[reason] += 1
            else:
                self.counts.workers += 1

    def ready(self, digest: str, future: Future[Found]) -> Found | None:
        """What the future holds; ``None`` while it is not done, and after a failure."""
        if not future.done() or future.cancelled():
            return None
        self._say_losses()
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, RefusedError):
            return None  # said where it runs on the host
        if digest not in self._reported:
            self._reported[digest] = None
            self.counts.failed += 1
            warn_or_print(
                f"compiling in the background failed; this chunk goes on uncompiled: {error}",
                BackgroundCompileWarning,
                stacklevel=2,
            )
        return None

    def run_uncompiled(
        self, backend: Backend, chunk: Chunk, scalars: bytes, arrays: Sequence[Any], device: int
    ) -> list[Any]:
        """Run a chunk whose executable is not there yet; see ``fuse.engine.uncompiled``."""
        self.counts.uncompiled_chunks += 1
        return self._uncompiled.run(backend, chunk, scalars, arrays, device)

    def _say_losses(self) -> None:
        for text in self._beside.losses():
            warn_or_print(
                f"compiling beside the program failed; it goes on in the program's process: {text}",
                BackgroundCompileWarning,
                stacklevel=3,
            )

    def is_idle(self) -> bool:
        """Whether nothing is being compiled."""
        return self._pool.is_idle() and self._waited.is_idle()

    def stats(self) -> dict[str, Any]:
        """``pending`` (executables being made), and the counts since the reset."""
        return {
            "pending": self._pool.pending() if self.background else 0,
            "compiled": self.counts.compiled,
            "failed": self.counts.failed,
            "uncompiled_chunks": self.counts.uncompiled_chunks,
            "workers": self.counts.workers,
            "here": dict(self.counts.here),
        }


class RefusedError(ExecutionError):
    """A chunk has an operator that the backend was presumed to run, or its compiler to take."""


class BackgroundCompileWarning(UserWarning):
    """A chunk could not be compiled in the background, and runs uncompiled from then on; or a
    worker process was lost, and what it had is compiled in the program's process."""
