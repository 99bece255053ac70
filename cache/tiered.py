"""The cache: memory, then disk, then shared, then making it; and every key made once.

Order of one lookup: the memory tier; the disk tier; the lease of the key, with a bounded
wait for whoever holds it; the disk tier again; the shared tier, which has a short head
start over making. What is found is kept in every tier above, what is made in every tier
below, and all writing happens on background threads.
"""

from __future__ import annotations

import contextvars
import os
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar, final

from fuse.cache.background import call_at_exit
from fuse.cache.control import stored_keys
from fuse.cache.counters import Events, Notices
from fuse.cache.errors import CacheMissError
from fuse.cache.explain import Explanation, explain
from fuse.cache.gate import run_in_thread
from fuse.cache.key import Key
from fuse.cache.level import Level
from fuse.cache.lookup import UNKNOWN_SIZE, Lookup
from fuse.cache.memory import Live, MemoryTier
from fuse.cache.settings import CacheSettings
from fuse.cache.turns import Turns
from fuse.cache.writer import Writer
from fuse.errors import ConfigError

Object = TypeVar("Object")
Load = Callable[[bytes], Object]
Make = Callable[[], Object]
Dump = Callable[[Object], bytes | None]

# Warnings point at the caller of the cache's public method.
_CALLER = 2


@final
@dataclass(frozen=True, slots=True)
class _Found:
    """An object that was made, or the payload beside it when the shared tier gave it."""

    value: Any
    payload: bytes | None = None


@final
class TieredCache:
    """Live objects by key over up to two stored tiers. Safe to share by threads.

    Objects are anything but None: None stands for a miss everywhere. Build one with
    ``open_cache``.
    """

    def __init__(
        self,
        settings: CacheSettings,
        memory: MemoryTier,
        disk: Level | None,
        shared: Level | None,
        notices: Notices,
    ) -> None:
        """Put the tiers together; ``disk`` and ``shared`` are None where there is none."""
        self.settings = settings
        self._disk = disk
        self._shared = shared
        self._notices = notices
        self._events = Events()
        self._turns = None
        if disk is not None and settings.directory is not None and settings.mode == "on":
            self._turns = Turns(disk, settings.directory, settings.lease_seconds, self._events)
        self._writer = Writer(settings, disk, shared, self._turns, self._events, notices)
        head_start = settings.head_start_seconds
        self._lookup = Lookup(memory, disk, shared, self._writer, head_start)
        # Makings that lost the race against the shared tier and still run.
        self._overtaken: set[Future[Any]] = set()
        self._process = os.getpid()
        _open_caches.add(self)

    # Looking up

    def get(self, key: Key, load: Load[Object], *, quick: bool = False) -> Object | None:
        """Return the object of ``key``, or None. Never makes, never raises for a miss.

        Args:
            key: what is wanted.
            load: payload to object; what it raises rejects the entry.
            quick: the object is soon made: the shared tier has its head start and no more.
        """
        value: Object | None = self._lookup.from_memory(key)
        if value is None:
            value = self._lookup.stored(key, load, quick=quick)
            if value is not None:
                self._writer.used(key)
            self._notices.emit(_CALLER)
        return value

    def reread(self, key: Key, load: Load[Object]) -> Object | None:
        """Return what the stored tiers hold now, whatever is in memory, or None.

        For a ``dump`` that merges what it writes with what others wrote meanwhile. Warnings
        wait for the next call of a user's thread.
        """
        value: Object | None = self._lookup.stored(key, load)
        return value

    def get_or_make(
        self,
        key: Key,
        *,
        load: Load[Object],
        make: Make[Object],
        dump: Dump[Object],
        race: bool = True,
    ) -> Object:
        """Return the object of ``key``, made at most once a host unless something fails.

        Args:
            key: what is wanted.
            load: payload to object; what it raises rejects the entry.
            make: makes the object; what it raises is raised here.
            dump: object to payload, or None when it cannot be stored; runs on a background
                thread, after this call has returned.
            race: whether ``make`` may run on another thread, in a copy of this thread's
                context, so that a slow shared tier can still overtake it. Without it,
                ``make`` runs here, once the shared tier has had its head start.

        Raises:
            CacheMissError: in mode ``only``, for a miss; the text explains it.
        """
        # The hot path of a cached step: two locks and one dict, some 2 us.
        value: Object | None = self._lookup.from_memory(key)
        if value is not None:
            return value
        made: Object = self._find_or_make(key, load, make, dump, race=race)
        self._writer.used(key)
        self._notices.emit(_CALLER)
        return made

    def named(self, digest: str, load: Load[Any]) -> Live | None:
        """Return key, object and where it was under ``digest`` from memory or disk, or None.

        For those who kept the digest of a key and save making the key again. The shared tier
        is not asked, and no miss is counted: ``get_or_make`` does both.

        Args:
            digest: of the key.
            load: payload to object; what it raises rejects the entry.
        """
        found = self._lookup.named(digest, load)
        if found is not None and found.origin != "memory":
            self._writer.used(found.key)
        self._notices.emit(_CALLER)
        return found

    def refuse(self, key: Key, text: str) -> None:
        """Forget what is stored under ``key``: its user found that it does not fit.

        Counted as a rejection of the disk tier, with a warning, and removed from it.
        """
        self._lookup.memory.drop(key.digest)
        if self._disk is not None:
            self._disk.reject(key, "load", text)
        self._notices.emit(_CALLER)

    def put(self, key: Key, value: Object, dump: Dump[Object]) -> None:
        """Keep ``value`` in memory and, in the background, in the tiers below.

        Args:
            key: what ``value`` is the object of.
            value: the object, not None.
            dump: object to payload, or None when it cannot be stored; on another thread.
        """
        self._lookup.keep(key, value, UNKNOWN_SIZE)
        self._writer.used(key)
        self._writer.made(
            key, lambda: dump(value), lambda size: self._lookup.resize(key, size), None
        )
        self._notices.emit(_CALLER)

    def preload(self, digests: Sequence[str], load: Load[Object]) -> None:
        """Load entries of the disk tier in the background, for lookups that will come.

        A hit is counted, recorded and kept in memory only once a lookup takes it.

        Args:
            digests: of the keys, in the order in which they will be wanted.
            load: payload to object, called on another thread; what it raises rejects the entry.
        """
        if self._lookup.preloads is not None:
            self._lookup.preloads.start(digests, load)

    # What is known about it

    def level(self, name: str) -> Level:
        """Return the stored tier called ``name``, for the functions of ``fuse.cache.control``.

        Raises:
            ConfigError: there is no such tier in this cache; the text lists those there are.
        """
        for level in self._levels():
            if level.name == name:
                return level
        names = [level.name for level in self._levels()]
        raise ConfigError(f"this cache has no tier {name!r}; it has {names}")

    def origin(self, key: Key) -> str | None:
        """Return where the live object of ``key`` came from: a tier's name, or ``made``.

        None when the memory tier does not hold it.
        """
        live = self._lookup.memory.peek(key)
        return None if live is None else live.origin

    def explain(self, key: Key) -> Explanation:
        """Return why ``key`` misses: the nearest key in memory and on disk.

        The shared tier is looked at only when those hold nothing to compare with.
        """
        known = {other.digest: other for other in self._lookup.memory.stored_keys()}
        if self._disk is not None:
            known |= {other.digest: other for other in stored_keys(self._disk)}
        if not known and self._shared is not None:
            known = {other.digest: other for other in stored_keys(self._shared)}
        return explain(key, known.values())

    def stats(self) -> dict[str, Any]:
        """Return the counters as plain data.

        ``tiers`` has one dict a tier with ``hits``, ``misses``, ``puts``, and ``bypasses``,
        ``rejections`` and ``failures`` by reason, ``evictions`` (of this process), and for
        the memory tier ``entries`` and ``bytes``. ``events`` counts makings, leases, races
        and background work by name; ``unwritten`` is the work still queued.
        """
        entries, size = self._lookup.memory.usage()
        memory = self._lookup.memory_counters.snapshot()
        memory |= {"evictions": self._lookup.memory.evictions, "entries": entries, "bytes": size}
        tiers = {"memory": memory}
        for level in self._levels():
            evictions = level.tier.store.evictions
            tiers[level.name] = level.counters.snapshot() | {"evictions": evictions}
        return {
            "mode": self.settings.mode,
            "tiers": tiers,
            "events": self._events.snapshot(),
            "unwritten": self._writer.unfinished(),
        }

    # The end

    def halve_memory(self) -> None:
        """Let the least recently used half of the live objects go, where memory is short."""
        self._lookup.memory.halve()

    def clear_memory(self) -> int:
        """Drop every live object from the memory tier; return how many there were."""
        return self._lookup.memory.clear()

    def flush(self, seconds: float | None = None) -> bool:
        """Wait until what was put is stored, at most ``seconds`` (default: ``exit_seconds``).

        Returns:
            Whether everything was stored, or given up with a count, in time.
        """
        done = self._writer.flush(self.settings.exit_seconds if seconds is None else seconds)
        self._notices.emit(_CALLER)
        return done

    def close(self) -> None:
        """Flush, wait (bounded) for makings that were overtaken, and let the threads end.

        The cache stays usable afterwards.
        """
        deadline = time.monotonic() + self.settings.exit_seconds
        if not self._writer.flush(self.settings.exit_seconds):
            text = f"compilation cache: {self._writer.unfinished()} entries were not written"
            self._notices.add("exit-unwritten", text)
        # Neither a loader nor a compiler may run while the interpreter takes itself down.
        if self._lookup.preloads is not None:
            self._lookup.preloads.stop(max(0.0, deadline - time.monotonic()))
        wait(list(self._overtaken), timeout=max(0.0, deadline - time.monotonic()))
        self._writer.stop()
        self._notices.emit(_CALLER)

    def close_at_exit(self) -> None:
        """Close, but in a forked child leave what it inherited alone.

        Threads that the child does not have may hold the locks.
        """
        if self._process == os.getpid():
            self.close()

    # Steps of a lookup

    def _levels(self) -> list[Level]:
        return [level for level in (self._disk, self._shared) if level is not None]

    def _find_or_make(
        self, key: Key, load: Load[Any], make: Make[Any], dump: Dump[Any], *, race: bool
    ) -> Any:
        if self.settings.mode == "only":
            value = self._lookup.stored(key, load)
            if value is None:
                raise CacheMissError(self.explain(key))
            return value
        value = self._lookup.from_disk(key, load)
        if value is not None:
            return value
        lease = None if self._turns is None else self._turns.take(key)
        try:
            if self._turns is not None:
                # Whoever held the lease before may have stored it since we looked.
                value = self._lookup.from_disk(key, load, again=True)
                if value is not None:
                    return value
            found = self._shared_or_make(key, load, make, race=race)
            # From here on the writer ends the lease.
            held, lease = lease, None
        finally:
            self._writer.end(lease, stored=False)
        if found.payload is not None:
            self._writer.promoted(key, found.payload, held)
        else:
            value = found.value
            self._lookup.keep(key, value, UNKNOWN_SIZE)
            self._writer.made(
                key, lambda: dump(value), lambda size: self._lookup.resize(key, size), held
            )
        return found.value

    def _shared_or_make(self, key: Key, load: Load[Any], make: Make[Any], *, race: bool) -> _Found:
        """Read the shared tier, and make as soon as it is late or has nothing."""
        shared = self._shared
        pending = None if shared is None else shared.start_get(key)
        if shared is None or pending is None:
            return self._made(make)
        wait((pending,), timeout=self.settings.head_start_seconds)
        if pending.done():
            payload = shared.settle(pending)
            value = self._lookup.load_from(shared, key, load, payload)
            return self._made(make) if value is None else _Found(value, payload)
        if not race:
            shared.abandon()
            return self._made(make)
        return self._race(shared, pending, key, load, make)

    def _race(
        self,
        shared: Level,
        pending: Future[bytes | None],
        key: Key,
        load: Load[Any],
        make: Make[Any],
    ) -> _Found:
        """Make on another thread while the shared tier is still reading; first come wins."""
        self._events.add("races")
        context = contextvars.copy_context()
        making = run_in_thread(lambda: context.run(make), "fuse-cache-make")
        wait((pending, making), timeout=shared.gate.seconds, return_when=FIRST_COMPLETED)
        if making.done():
            shared.abandon()
        else:
            payload = shared.settle(pending, 0.0)
            value = self._lookup.load_from(shared, key, load, payload)
            if value is not None:
                self._events.add("races-won-by-shared")
                self._overtaken.add(making)
                making.add_done_callback(self._overtaken.discard)
                return _Found(value, payload)
        # As long as the making takes, which is what the caller asked for.
        return self._made(making.result)

    def _made(self, make: Make[Any]) -> _Found:
        value = make()
        self._events.add("makes")
        return _Found(value)


_open_caches: weakref.WeakSet[TieredCache] = weakref.WeakSet()


def _close_all() -> None:
    for cache in list(_open_caches):
        cache.close_at_exit()


call_at_exit(_close_all)
