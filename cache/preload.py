"""Loading ahead: entries that will probably be asked for become objects before they are.

One background thread reads and loads them in the order given, while the program still
imports and builds what it needs. Nothing depends on it: a lookup takes what is ready,
waits for what is being loaded at that moment, and loads anything else itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from fuse.cache.gate import run_in_thread
from fuse.cache.key import Key
from fuse.cache.level import Level

MAX_BYTES = 256 << 20
"""Payloads loaded ahead at most, in bytes: a guess must not fill the memory."""


@final
@dataclass(frozen=True, slots=True)
class Loaded:
    """An object, its key, and the size of the payload it was loaded from."""

    key: Key
    value: Any
    size: int


@final
class Preloads:
    """Objects loaded ahead from one level. Safe to share by threads."""

    def __init__(self, level: Level) -> None:
        """Start with nothing; no thread runs before ``start``."""
        self._level = level
        self._changed = threading.Condition()
        self._waiting: dict[str, Callable[[bytes], Any]] = {}
        self._running: str | None = None
        self._ready: dict[str, Loaded] = {}
        self._size = 0
        self._thread = False

    def start(self, digests: Sequence[str], load: Callable[[bytes], Any]) -> None:
        """Load the entries of ``digests`` in the background; what is not stored is left out."""
        with self._changed:
            self._waiting |= dict.fromkeys(digests, load)
            if self._thread or not self._waiting:
                return
            self._thread = True
        try:
            run_in_thread(self._run, "fuse-cache-preload")
        except RuntimeError:
            # No thread starts while the interpreter shuts down; nothing is lost.
            self.stop(0.0)

    def take(self, digest: str) -> Loaded | None:
        """Return what was loaded for ``digest``, once; None where the caller has to load it."""
        with self._changed:
            self._waiting.pop(digest, None)
            deadline = time.monotonic() + self._level.gate.seconds
            while self._running == digest:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
            return self._ready.pop(digest, None)

    def stop(self, seconds: float) -> None:
        """Load nothing more, drop what nobody took, and wait for the one that is loading."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._waiting.clear()
            self._ready.clear()
            while self._running is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting or self._size >= MAX_BYTES:
                    self._thread = False
                    return
                digest = next(iter(self._waiting))
                load = self._waiting.pop(digest)
                self._running = digest
            loaded = None
            try:
                loaded = self._load(digest, load)
            finally:
                with self._changed:
                    self._running = None
                    if loaded is not None:
                        self._ready[digest] = loaded
                        self._size += loaded.size
                    self._changed.notify_all()

    def _load(self, digest: str, load: Callable[[bytes], Any]) -> Loaded | None:
        entry = self._level.entry(digest)
        if entry is None:
            return None
        value = loaded(self._level, entry.header.key, entry.payload, load)
        return None if value is None else Loaded(entry.header.key, value, len(entry.payload))


def loaded(level: Level, key: Key, payload: bytes, load: Callable[[bytes], Any]) -> Any | None:
    """Return the object of a payload that ``level`` gave; None, counted, where it is refused."""
    try:
        return load(payload)
    # A backend refuses bytes that are what was once stored, in words of its own.
    except Exception as error:  # noqa: BLE001
        level.reject(key, "load", f"{type(error).__name__}: {error}")
        return None
