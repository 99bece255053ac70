"""The warm start: executables that the same command used last time load ahead of their use.

Loading takes ten to some hundred milliseconds an executable. A second start of the same
command does it on a second core, while the program still imports and builds its model.
A wrong guess costs that core some work and changes no result.
"""

from __future__ import annotations

import hashlib
import json
import sys

from fuse.backends.base import Backend
from fuse.cache.key import Key, is_digest
from fuse.engine.executables import Executables, surroundings

MAX_RECALLED = 64
"""Executables loaded ahead, those first used first: the ones a start waits for."""
_NO_PROGRAM = ("", "-", "-c")


class WarmStart:
    """Loads ahead what this command used last time, and remembers what it uses now."""

    def __init__(self, backend: Backend, executables: Executables) -> None:
        """Start to load; returns at once."""
        self._executables = executables
        self._key = _key(backend)
        self._last: list[str] = []
        if self._key is not None:
            self._last = executables.cache.get(self._key, load) or []
            executables.cache.preload(self._last, backend.load)

    def save(self) -> None:
        """Store what was used, in the background, where it differs from the last time."""
        used = self._executables.used()[:MAX_RECALLED]
        if self._key is not None and used and used != self._last:
            self._last = used
            self._executables.cache.put(self._key, used, lambda value: json.dumps(value).encode())


def load(data: bytes) -> list[str]:
    """Stored digests; raises ``ValueError`` for bytes that are none."""
    found = json.loads(data)
    if not isinstance(found, list) or len(found) > MAX_RECALLED:
        raise ValueError("what was stored is no list of digests")
    for digest in found:
        if not isinstance(digest, str) or not is_digest(digest):
            raise ValueError(f"{digest!r} is no digest")
    return found


def _key(backend: Backend) -> Key | None:
    """The key of this command line; none where there is no program, as in an interpreter."""
    if not sys.argv or sys.argv[0] in _NO_PROGRAM:
        return None
    # Hashed, for a command line may hold what must not be written down.
    command = hashlib.sha256("\0".join(sys.argv).encode("utf-8", "surrogatepass")).hexdigest()
    fields = {"kind": "recall", "command": command, **surroundings(backend)}
    return Key.of(fields, label="executables of one command")
