"""What the tiers hold now: memory, disk, shared, and promoting what is found.

Nothing is made here, and no lease is taken: ``fuse.cache.tiered`` does both.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import replace
from typing import Any, final

from fuse.cache.counters import Counters
from fuse.cache.errors import TierBypassError
from fuse.cache.key import Key
from fuse.cache.level import Level
from fuse.cache.memory import Live, MemoryTier, weight
from fuse.cache.preload import Loaded, Preloads, loaded
from fuse.cache.writer import Writer

Load = Callable[[bytes], Any]

UNKNOWN_SIZE = 1
"""What an object counts whose stored size is not known yet."""


@final
class Lookup:
    """Looks one key up in one tier, or in several in order. Safe to share by threads."""

    def __init__(
        self,
        memory: MemoryTier,
        disk: Level | None,
        shared: Level | None,
        writer: Writer,
        head_start_seconds: float,
    ) -> None:
        self.memory = memory
        self.memory_counters = Counters()
        self.disk = disk
        self.shared = shared
        self.preloads = None if disk is None else Preloads(disk)
        self._writer = writer
        self._head_start_seconds = head_start_seconds

    def from_memory(self, key: Key) -> Any | None:
        """Return the live object of ``key``, or None."""
        live = self.memory.get(key)
        self.memory_counters.add("misses" if live is None else "hits")
        return None if live is None else live.value

    def keep(self, key: Key, value: Any, size: int, origin: str = "made") -> None:
        """Put an object into the memory tier; one that is too large is counted and left out."""
        try:
            self.memory.put(key, Live(key, value, max(weight(value, size), UNKNOWN_SIZE), origin))
            self.memory_counters.add("puts")
        except TierBypassError as error:
            self.memory_counters.add_reason("bypasses", error.reason)

    def resize(self, key: Key, size: int) -> None:
        """Tell the memory tier what an object counts, now that it is known."""
        live = self.memory.peek(key)
        if live is None:
            return
        try:
            self.memory.resize(key, max(weight(live.value, size), UNKNOWN_SIZE))
        except TierBypassError as error:
            self.memory_counters.add_reason("bypasses", error.reason)

    def stored(self, key: Key, load: Load, *, quick: bool = False) -> Any | None:
        """Look on disk, then in the shared tier; promote what is found.

        ``quick`` gives the shared tier its head start and no more.
        """
        value = self.from_disk(key, load)
        if value is not None or self.shared is None:
            return value
        pending = self.shared.start_get(key)
        if quick and pending is not None:
            wait((pending,), timeout=self._head_start_seconds)
            if not pending.done():
                self.shared.abandon()
                return None
        payload = self.shared.settle(pending)
        value = self.load_from(self.shared, key, load, payload)
        if value is not None and payload is not None:
            self._writer.promoted(key, payload, None)
        return value

    def from_disk(self, key: Key, load: Load, *, again: bool = False) -> Any | None:
        """Return what the disk tier holds; ``again`` after a first look, which counted the miss."""
        if self.disk is None:
            return None
        ready = self._preloaded(self.disk, key.digest)
        if ready is not None:
            return ready.value
        return self.load_from(self.disk, key, load, self.disk.get(key, again=again))

    def named(self, digest: str, load: Load) -> Live | None:
        """Return what memory or disk holds under ``digest``; no miss is counted."""
        live = self.memory.named(digest)
        if live is not None:
            self.memory_counters.add("hits")
            return replace(live, origin="memory")
        disk = self.disk
        if disk is None:
            return None
        ready = self._preloaded(disk, digest)
        if ready is not None:
            return Live(ready.key, ready.value, ready.size, disk.name)
        entry = disk.entry(digest)
        if entry is None:
            return None
        key = entry.header.key
        value = self.load_from(disk, key, load, entry.payload)
        return None if value is None else Live(key, value, len(entry.payload), disk.name)

    def _preloaded(self, disk: Level, digest: str) -> Loaded | None:
        ready = None if self.preloads is None else self.preloads.take(digest)
        if ready is not None:
            disk.counters.add("hits")
            self.keep(ready.key, ready.value, ready.size, disk.name)
        return ready

    def load_from(self, level: Level, key: Key, load: Load, payload: bytes | None) -> Any | None:
        """Return the object of a payload that ``level`` gave, and keep it in memory."""
        value = None if payload is None else loaded(level, key, payload, load)
        if payload is None or value is None:
            return None
        level.counters.add("hits")
        self.keep(key, value, len(payload), level.name)
        return value
