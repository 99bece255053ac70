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
from dataclasses import replace
from typing import Any, TypeVar, final

from fuse.cache.background import WORKERS, call_at_exit
from fuse.cache.control import stored_keys
from fuse.cache.counters import Events, Notices
from fuse.cache.errors import CacheMissError
from fuse.cache.explain import Explanation, explain
from fuse.cache.key import Key
from fuse.cache.lease import Lease
from fuse.cache.memory import Live, MemoryTier
from fuse.cache.preload import Preloads
from fuse.cache.settings import CacheSettings
from fuse.cache.single_flight import SingleFlight
from fuse.cache.stored import StoredTier
from fuse.cache.writer import Writer
from fuse.errors import ConfigError

Object = TypeVar("Object")
Load = Callable[[bytes], Object]
Make = Callable[[], Object]
Dump = Callable[[Object], bytes | None]

# Warnings point at the caller of the cache's public method.
_CALLER = 2


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
        disk: StoredTier | None,
        shared: StoredTier | None,
        notices: Notices,
    ) -> None:
        """Put the tiers together; ``disk`` and ``shared`` are None where there is none."""
        self.settings = settings
        self._memory = memory
        self._disk = disk
        self._shared = shared
        self._local = [] if disk is None else [disk]
        self._tiers = self._local if shared is None else [*self._local, shared]
        self._notices = notices
        self._events = Events()
        self._single_flight = None
        if disk is not None and settings.directory is not None and settings.mode == "on":
            self._single_flight = SingleFlight(
                disk, settings.directory, settings.lease_seconds, self._events
            )
        self._writer = Writer(settings, disk, shared, self._single_flight, self._events, notices)
        self._preloads = Preloads(self._events)
        # Makings that lost the race against the shared tier and still run.
        self._overtaken: set[Future[Any]] = set()
        _open_caches.add(self)

    # Looking up

    def get(self, key: Key, load: Load[Object], *, quick: bool = False) -> Object | None:
        """Return the object of ``key``, or None. Never makes, never raises for a miss.

        Args:
            key: what is wanted.
            load: payload to object; what it raises rejects the entry.
            quick: the object is soon made: the shared tier has its head start and no more.
        """
        live = self._memory.get(key.digest)
        if live is None:
            live = self._stored(key.digest, load, self._tiers, quick=quick)
            if live is not None:
                self._writer.used(key)
            self._notices.emit(_CALLER)
        return None if live is None else live.value

    def reread(self, key: Key, load: Load[Object]) -> Object | None:
        """Return what the stored tiers hold now, whatever is in memory, or None.

        For a ``dump`` that merges what it writes with what others wrote meanwhile. Warnings
        wait for the next call of a user's thread.
        """
        live = self._stored(key.digest, load, self._tiers)
        return None if live is None else live.value

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
        live = self._memory.get(key.digest)
        if live is not None:
            held: Object = live.value
            return held
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
        live = self._memory.get(digest, count_miss=False)
        if live is not None:
            return replace(live, origin="memory")
        live = self._stored(digest, load, self._local, count_miss=False)
        if live is not None:
            self._writer.used(live.key)
        self._notices.emit(_CALLER)
        return live

    def refuse(self, key: Key, text: str) -> None:
        """Forget what is stored under ``key``: its user found that it does not fit.

        Counted as a rejection of the disk tier, with a warning, and removed from it.
        """
        self._memory.drop(key.digest)
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
        self._writer.used(key)
        self._keep(key, value, dump, None)
        self._notices.emit(_CALLER)

    def preload(self, digests: Sequence[str], load: Load[Object]) -> None:
        """Load entries of the disk tier in the background, for lookups that will come.

        A hit is counted, recorded and kept in memory only once a lookup takes it.

        Args:
            digests: of the keys, in the order in which they will be wanted.
            load: payload to object, called on another thread; what it raises rejects the entry.
        """
        for tier in self._local:
            self._preloads.start(tier, digests, load)

    # What is known about it

    def tier(self, name: str) -> StoredTier:
        """Return the stored tier called ``name``, for the functions of ``fuse.cache.control``.

        Raises:
            ConfigError: there is no such tier in this cache; the text lists those there are.
        """
        for tier in self._tiers:
            if tier.name == name:
                return tier
        names = [tier.name for tier in self._tiers]
        raise ConfigError(f"this cache has no tier {name!r}; it has {names}")

    def origin(self, key: Key) -> str | None:
        """Return where the live object of ``key`` came from: a tier's name, or ``made``.

        None when the memory tier does not hold it.
        """
        live = self._memory.peek(key.digest)
        return None if live is None else live.origin

    def explain(self, key: Key) -> Explanation:
        """Return why ``key`` misses: the nearest key in memory and on disk.

        The shared tier is looked at only when those hold nothing to compare with.
        """
        known = {other.digest: other for other in self._memory.stored_keys()}
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
        entries, size = self._memory.usage()
        memory = self._memory.counters.snapshot()
        memory |= {"evictions": self._memory.evictions, "entries": entries, "bytes": size}
        tiers = {"memory": memory}
        for tier in self._tiers:
            tiers[tier.name] = tier.counters.snapshot() | {"evictions": tier.store.evictions}
        return {
            "mode": self.settings.mode,
            "tiers": tiers,
            "events": self._events.snapshot(),
            "unwritten": self._writer.unfinished(),
        }

    # The end

    def halve_memory(self) -> None:
        """Let the least recently used half of the live objects go, where memory is short."""
        self._memory.halve()

    def clear_memory(self) -> int:
        """Drop every live object from the memory tier; return how many there were."""
        return self._memory.clear()

    def flush(self, seconds: float | None = None) -> bool:
        """Wait until what was put is stored, at most ``seconds`` (default: ``exit_seconds``).

        Returns:
            Whether everything was stored, or given up with a count, in time.
        """
        done = self._writer.flush(self.settings.exit_seconds if seconds is None else seconds)
        self._notices.emit(_CALLER)
        return done

    def close(self) -> None:
        """Flush, and wait (bounded) for makings that were overtaken. It stays usable."""
        deadline = time.monotonic() + self.settings.exit_seconds
        if not self._writer.flush(self.settings.exit_seconds):
            text = f"compilation cache: {self._writer.unfinished()} entries were not written"
            self._notices.add("exit-unwritten", text)
        # Neither a loader nor a compiler may run while the interpreter takes itself down.
        self._preloads.stop(max(0.0, deadline - time.monotonic()))
        wait(list(self._overtaken), timeout=max(0.0, deadline - time.monotonic()))
        self._notices.emit(_CALLER)

    # Steps of a lookup

    def _stored(
        self,
        digest: str,
        load: Load[Any],
        tiers: Sequence[StoredTier],
        *,
        quick: bool = False,
        count_miss: bool = True,
    ) -> Live | None:
        """Look in ``tiers`` in order, and keep what one holds in those above it.

        ``quick`` gives the shared tier its head start and no more.
        """
        for tier in tiers:
            shared = tier is self._shared
            ready = None if shared else self._preloads.take(digest, tier.breaker.seconds)
            if ready is not None:
                return self._taken(tier, ready)
            late = self.settings.head_start_seconds if quick and shared else None
            entry = tier.get(digest, seconds=late, count_miss=count_miss)
            live = None if entry is None else tier.load(entry, load)
            if live is not None and entry is not None:
                if shared:
                    self._writer.promoted(live.key, entry.payload, None)
                return self._taken(tier, live)
        return None

    def _taken(self, tier: StoredTier, live: Live) -> Live:
        """Count a hit of ``tier``, and keep its object in memory from now on."""
        tier.counters.add("hits")
        self._memory.put(live)
        return live

    def _find_or_make(
        self, key: Key, load: Load[Any], make: Make[Any], dump: Dump[Any], *, race: bool
    ) -> Any:
        only = self.settings.mode == "only"
        live = self._stored(key.digest, load, self._tiers if only else self._local)
        if live is not None:
            return live.value
        if only:
            raise CacheMissError(self.explain(key))
        lease = None if self._single_flight is None else self._single_flight.take(key)
        try:
            if self._single_flight is not None:
                # Whoever held the lease before may have stored it since we looked.
                live = self._stored(key.digest, load, self._local, count_miss=False)
                if live is not None:
                    return live.value
            value, payload = self._shared_or_make(key, load, make, race=race)
            # From here on the writer ends the lease.
            held, lease = lease, None
        finally:
            self._writer.end(lease, stored=False)
        if payload is None:
            self._keep(key, value, dump, held)
        else:
            self._writer.promoted(key, payload, held)
        return value

    def _keep(self, key: Key, value: object, dump: Dump[Any], lease: Lease | None) -> None:
        """Put what was made into every tier; the writer ends ``lease``."""
        self._memory.put(Live(key, value))
        self._writer.made(
            key, lambda: dump(value), lambda size: self._memory.resize(key.digest, size), lease
        )

    def _shared_or_make(
        self, key: Key, load: Load[Any], make: Make[Any], *, race: bool
    ) -> tuple[Any, bytes | None]:
        """Return what the shared tier has, with its payload, or else what is made.

        Making begins as soon as the tier is late or has nothing. In a race it is made on
        another thread while the tier is still reading, and the first one wins.
        """
        shared = self._shared
        reading = None if shared is None else shared.start(key.digest)
        making: Future[Any] | None = None
        if shared is not None and reading is not None:
            wait((reading,), timeout=self.settings.head_start_seconds)
            if race and not reading.done():
                self._events.add("races")
                within = contextvars.copy_context()
                making = WORKERS.run(lambda: within.run(make), "fuse-cache-make")
                wait((reading, making), shared.breaker.seconds, FIRST_COMPLETED)
            if making.done() if making else not reading.done():
                shared.abandon()
            else:
                entry = shared.finish(reading, 0.0)
                live = None if entry is None else shared.load(entry, load)
                if live is not None and entry is not None:
                    if making is not None:
                        self._events.add("races-won-by-shared")
                        self._overtaken.add(making)
                        making.add_done_callback(self._overtaken.discard)
                    return self._taken(shared, live).value, entry.payload
        # As long as the making takes, which is what the caller asked for.
        value = make() if making is None else making.result()
        self._events.add("makes")
        return value, None


_open_caches: weakref.WeakSet[TieredCache] = weakref.WeakSet()


def _close_all() -> None:
    for cache in list(_open_caches):
        cache.close()


call_at_exit(_close_all)
# A forked child leaves what it inherited alone: threads that it does not have may hold the locks.
os.register_at_fork(after_in_child=_open_caches.clear)
