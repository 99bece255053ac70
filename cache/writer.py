"""Everything the cache writes, in the background: what was made, promoted, or used.

One queue writes to disk and ends leases, another writes to the shared tier, so that a
slow remote holds up nobody who waits for a lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

from fuse.cache.background import JobQueue
from fuse.cache.counters import Events, Notices
from fuse.cache.key import Key
from fuse.cache.lease import Lease
from fuse.cache.record import Recorder
from fuse.cache.settings import CacheSettings
from fuse.cache.single_flight import SingleFlight
from fuse.cache.stored import StoredTier

_DISK, _SHARED = "disk", "shared"


@final
class Writer:
    """Owns the queues of what is to be written. No method waits, but ``flush``."""

    def __init__(
        self,
        settings: CacheSettings,
        disk: StoredTier | None,
        shared: StoredTier | None,
        single_flight: SingleFlight | None,
        events: Events,
        notices: Notices,
    ) -> None:
        """Put it over the tiers; ``single_flight`` is there when leases are taken."""
        self._mode = settings.mode
        self._disk = disk
        self._shared = shared
        self._single_flight = single_flight
        self._events = events
        self._notices = notices
        self._recorder = None if settings.record is None else Recorder(settings.record)
        self._queues = {
            name: JobQueue(f"fuse-cache-{name}-writer", settings.queue_jobs, self._failed)
            for name in (_DISK, _SHARED)
        }

    def made(
        self,
        key: Key,
        dump: Callable[[], bytes | None],
        sized: Callable[[int], None],
        lease: Lease | None,
    ) -> None:
        """Store what was made: on disk, then end ``lease``, then in the shared tier.

        Args:
            key: of what was made.
            dump: gives the payload, or None when it cannot be stored.
            sized: told the payload's size.
            lease: ended when the disk tier has it, or will not have it.
        """
        if self._mode != "on" or (self._disk is None and self._shared is None):
            self.end(lease, stored=False)
            return

        def job() -> None:
            stored = False
            payload: bytes | None = None
            try:
                payload = dump()
                if payload is None:
                    self._events.add("not-serialisable")
                    return
                sized(len(payload))
                stored = self._disk is not None and self._disk.put(key, payload)
            finally:
                self.end(lease, stored=stored)
            self._share(key, payload)

        self._submit(_DISK, job, lease)

    def promoted(self, key: Key, payload: bytes, lease: Lease | None) -> None:
        """Store on disk what the shared tier gave, then end ``lease``."""
        disk = self._disk
        if disk is None or self._mode not in ("on", "only"):
            self.end(lease, stored=False)
            return

        def job() -> None:
            stored = False
            try:
                stored = disk.put(key, payload)
            finally:
                self.end(lease, stored=stored)

        self._submit(_DISK, job, lease)

    def used(self, key: Key) -> None:
        """Note the first use of ``key`` in the record file, where there is one."""
        recorder = self._recorder
        if recorder is not None and recorder.is_new(key):
            self._submit(_DISK, lambda: recorder.write(key), None)

    def end(self, lease: Lease | None, *, stored: bool) -> None:
        """End a lease, if there is one."""
        if lease is not None and self._single_flight is not None:
            self._single_flight.end(lease, stored=stored)

    def flush(self, seconds: float) -> bool:
        """Wait until all is written or given up, at most ``seconds``; say whether that was so."""
        deadline = time.monotonic() + seconds
        # The disk queue hands on to the shared one, so this order misses nothing.
        done = [
            self._queues[name].flush(max(0.0, deadline - time.monotonic()))
            for name in (_DISK, _SHARED)
        ]
        return all(done)

    def unfinished(self) -> int:
        """Return how many writes wait or run."""
        return sum(jobs.unfinished for jobs in self._queues.values())

    def _share(self, key: Key, payload: bytes) -> None:
        shared = self._shared
        if shared is None:
            return

        def job() -> None:
            shared.put(key, payload)

        self._submit(_SHARED, job, None)

    def _submit(self, name: str, job: Callable[[], None], lease: Lease | None) -> None:
        if not self._queues[name].submit(job):
            self._events.add(f"{name}-queue-full")
            self.end(lease, stored=False)

    def _failed(self, error: Exception) -> None:
        kind = f"background-{type(error).__name__}"
        self._events.add(kind)
        self._notices.add(kind, f"compilation cache: an entry was not written: {error!r}")
