"""The memory tier: live objects, bounded by entries and by bytes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol, final, runtime_checkable

from cachetools import Cache, LRUCache

from fuse.cache.counters import Counters
from fuse.cache.key import Key

UNKNOWN_SIZE = 1
"""What an object counts at least, and where its stored size is not known yet."""


@runtime_checkable
class Weighed(Protocol):
    """An object that takes another amount of memory than its stored form."""

    def held_bytes(self) -> int:
        """What it takes now, as far as is known."""
        ...


@cache
def _is_weighed(kind: Any) -> bool:
    return issubclass(kind, Weighed)  # 2 us, of a protocol


def weight(value: Any, stored: int) -> int:
    """The memory that an object takes, whose stored form has ``stored`` bytes."""
    kind: Any = type(value)
    return int(value.held_bytes()) if _is_weighed(kind) else stored


@final
@dataclass(frozen=True, slots=True)
class Live:
    """A live object.

    Attributes:
        key: what it is the object of.
        value: the object itself.
        size: its stored size where known; in the memory tier the bytes it is counted with,
            which it may say itself.
        origin: the tier it was read from, or ``made``.
    """

    key: Key
    value: Any
    size: int = UNKNOWN_SIZE
    origin: str = "made"


@final
class MemoryTier:
    """Live objects by digest; the least recently used go first. Safe to share by threads."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        """Bound the tier by both numbers."""
        self._lock = threading.Lock()
        self._max_entries = max_entries
        self._live: LRUCache[str, Live] = LRUCache(max_bytes, getsizeof=lambda live: live.size)
        self.evictions = 0
        self.counters = Counters()

    def get(self, digest: str, *, count_miss: bool = True) -> Live | None:
        """Return the live object under ``digest`` and make it the most recently used.

        ``count_miss`` is False for one who asks again by key.
        """
        with self._lock:
            live: Live | None = self._live.get(digest)
        if live is not None:
            self.counters.add("hits")
        elif count_miss:
            self.counters.add("misses")
        return live

    def peek(self, digest: str) -> Live | None:
        """Return the live object under ``digest`` without counting this as a use of it."""
        with self._lock:
            if digest not in self._live:
                return None
            live: Live = Cache.__getitem__(self._live, digest)
            return live

    def put(self, live: Live) -> bool:
        """Keep ``live``, and let the least recently used go until both bounds hold.

        Returns:
            Whether it is kept; one that alone is larger than the bound is counted and left out.
        """
        kept = self._place(live)
        if kept:
            self.counters.add("puts")
        return kept

    def resize(self, digest: str, size: int) -> None:
        """Count the object under ``digest``, if it is still here, with ``size`` stored bytes."""
        live = self.peek(digest)
        if live is not None:
            self._place(replace(live, size=size))

    def _place(self, live: Live) -> bool:
        live = replace(live, size=max(weight(live.value, live.size), UNKNOWN_SIZE))
        digest = live.key.digest
        with self._lock:
            before = len(self._live) + (digest not in self._live)
            fits = live.size <= self._live.maxsize
            if fits:
                self._live[digest] = live
                while len(self._live) > self._max_entries:
                    self._live.popitem()
                self.evictions += before - len(self._live)
            else:
                self._live.pop(digest, None)
        if not fits:
            self.counters.add_reason("bypasses", "too-large")
        return fits

    def drop(self, digest: str) -> None:
        """Forget one object, if it is here."""
        with self._lock:
            self._live.pop(digest, None)

    def stored_keys(self) -> list[Key]:
        """Return the keys of the live objects."""
        with self._lock:
            # Past LRUCache's own item access, which would count as a use of every object.
            return [Cache.__getitem__(self._live, digest).key for digest in self._live]

    def halve(self) -> None:
        """Let the least recently used half of the objects go."""
        with self._lock:
            count = len(self._live) // 2
            for _ in range(count):
                self._live.popitem()
            self.evictions += count

    def clear(self) -> int:
        """Drop every object; return how many there were."""
        with self._lock:
            count = len(self._live)
            self._live.clear()
            return count

    def usage(self) -> tuple[int, int]:
        """Return (entries, bytes)."""
        with self._lock:
            return len(self._live), int(self._live.currsize)
