"""The record of the keys a job used: one digest and one label a line."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import final

from fuse.cache.errors import CacheBundleError
from fuse.cache.key import Key, is_digest


@final
class Recorder:
    """Appends each key once a process. Several processes may share one file."""

    def __init__(self, path: Path) -> None:
        """Name the file; it is made at the first key."""
        self._path = path
        self._lock = threading.Lock()
        self._seen: set[str] = set()

    def is_new(self, key: Key) -> bool:
        """Say whether ``key`` is asked about for the first time, and remember it."""
        with self._lock:
            new = key.digest not in self._seen
            self._seen.add(key.digest)
            return new

    def write(self, key: Key) -> None:
        """Append the line of ``key`` in one write. Raises OSError."""
        line = f"{key.digest} {' '.join(key.label.split())}".rstrip() + "\n"
        with self._path.open("ab", buffering=0) as file:
            file.write(line.encode("utf-8", "backslashreplace"))


def read_record(path: Path) -> list[str]:
    """Return the digests of a record file, each once, in the order of first use.

    Raises:
        CacheBundleError: a line does not start with a digest; the text names the line.
        OSError: the file cannot be read.
    """
    digests: dict[str, None] = {}
    lines = path.read_text("utf-8", "replace").splitlines()
    for number, line in enumerate(lines, start=1):
        words = line.split(maxsplit=1)
        if not words or words[0].startswith("#"):
            continue
        if not is_digest(words[0]):
            raise CacheBundleError(f"{path}:{number} does not start with a digest: {line[:80]!r}")
        digests[words[0]] = None
    return list(digests)
