"""The memory tier: live objects, bounded by entries and by bytes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol, final, runtime_checkable

from cachetools import Cache, LRUCache

from fuse.cache.errors import TierBypassError
from fuse.cache.key import Key
from fuse.cache.tier import Tier


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
        size: the bytes it is counted with: what it says itself, or its stored size where known.
        origin: the tier it was read from, or ``made``.
    """

    key: Key
    value: Any
    size: int
    origin: str = "made"


@final
class MemoryTier(Tier[Live]):
    """Live objects by digest; the least recently used go first. Safe to share by threads."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        """Bound the tier by both numbers."""
        self._lock = threading.Lock()
        self._max_entries = max_entries
        self._live: LRUCache[str, Live] = LRUCache(max_bytes, getsizeof=lambda live: live.size)
        self.evictions = 0

    def get(self, key: Key) -> Live | None:
        """Return the live object of ``key`` and make it the most recently used. Never raises."""
        return self.named(key.digest)

    def named(self, digest: str) -> Live | None:
        """Return the live object under ``digest`` and make it the most recently used."""
        with self._lock:
            live: Live | None = self._live.get(digest)
            return live

    def peek(self, key: Key) -> Live | None:
        """Return the live object of ``key`` without counting this as a use of it."""
        with self._lock:
            if key.digest not in self._live:
                return None
            live: Live = Cache.__getitem__(self._live, key.digest)
            return live

    def put(self, key: Key, value: Live) -> None:
        """Keep ``value``, and let the least recently used go until both bounds hold.

        Raises:
            TierBypassError: the object alone is larger than the bound in bytes.
        """
        with self._lock:
            before = len(self._live) + (key.digest not in self._live)
            if value.size > self._live.maxsize:
                self._live.pop(key.digest, None)
                raise TierBypassError(
                    "too-large", f"{value.size} bytes exceed the memory tier", warn=False
                )
            self._live[key.digest] = value
            while len(self._live) > self._max_entries:
                self._live.popitem()
            self.evictions += before - len(self._live)

    def resize(self, key: Key, size: int) -> None:
        """Count the object of ``key``, if it is still here, with ``size`` bytes from now on."""
        live = self.get(key)
        if live is not None and live.size != size:
            self.put(key, replace(live, size=size))

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
