"""Compiling in a backend's worker processes, and in this one where that cannot be."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fuse.backends.base import Backend, Chunk, CompileWorkers, NotCompiled


@dataclass(frozen=True, slots=True)
class Made:
    """An executable, and the bytes by which the cache stores it."""

    executable: Any
    stored: bytes


class Beside:
    """One a compiler; safe to share by threads. Nothing starts before the first chunk."""

    def __init__(self, note: Callable[[str], None]) -> None:
        """``note`` gets why a chunk is compiled here, an empty text where a worker did it."""
        self._note = note
        self._lock = threading.Lock()
        self._used: set[CompileWorkers] = set()
        self._losses: list[str] = []
        self._closed = False

    def compiled(self, backend: Backend, chunk: Chunk) -> Made | None:
        """The executable, from a worker; ``None`` where it is to be made here.

        Raises ``NotCompiled`` where ``close`` ends the worker: nobody waits for it any more.
        """
        workers = None if self._closed else backend.workers()
        if workers is None:
            return None
        reason = workers.refusal(chunk)
        if not reason:
            with self._lock:
                self._used.add(workers)
            try:
                data = workers.compile(chunk)
                made = Made(backend.load(data), data)
            except NotCompiled as error:
                if self._closed:
                    raise
                reason = error.reason
                if error.lost:
                    self._losses.append(f"{reason}: {error}")
            except ValueError:
                reason = "not loadable"
            else:
                self._note("")
                return made
        self._note(reason)
        return None

    def losses(self) -> list[str]:
        """What became of workers, since this was asked last: for a thread of the user's to say."""
        said, self._losses = self._losses, []
        return said

    def close(self) -> None:
        """End all workers; whoever waits for one compiles no more."""
        self._closed = True
        with self._lock:
            used = list(self._used)
        for workers in used:
            workers.close()
