"""Single flight: of the processes that want one entry one makes it; the others wait, bounded."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import final

from fuse.cache.background import WORKERS
from fuse.cache.counters import Events
from fuse.cache.key import Key
from fuse.cache.lease import Lease, LeaseState
from fuse.cache.locks import pauses
from fuse.cache.stored import StoredTier


@final
class SingleFlight:
    """Gives out the leases of one disk tier."""

    def __init__(self, tier: StoredTier, directory: Path, seconds: float, events: Events) -> None:
        """Set the bound of a wait; outcomes are counted in ``events``."""
        self._tier = tier
        self._directory = directory
        self._seconds = seconds
        self._events = events

    def take(self, key: Key) -> Lease | None:
        """Take the lease of ``key``, waiting for its holder at most the bound.

        Returns:
            The lease, for ``end``; or None, and the caller makes its own: the bound passed,
            the holder ended without a result, or leases do not work here.
        """
        lease = Lease(self._directory, key.digest)
        taken = False
        try:
            taken = self._wait(lease)
        finally:
            if not taken:
                # A look that hung and still comes back finds the lease closed.
                self.end(lease, stored=False)
        return lease if taken else None

    def end(self, lease: Lease, *, stored: bool) -> None:
        """Give a lease back. Not through the breaker, which may be open: this has to happen."""
        close = partial(lease.close, stored=stored)
        self._tier.guard(
            "lease", lambda: self._tier.breaker.wait(WORKERS.run(close, "fuse-cache-lease"))
        )

    def _wait(self, lease: Lease) -> bool:
        deadline = time.monotonic() + self._seconds
        for turn, pause in enumerate(pauses()):
            state = self._tier.guard("lease", lambda: self._tier.run(lease.poll))
            busy = state is LeaseState.BUSY
            if busy and turn == 0:
                self._events.add("lease-waits")
            if busy and time.monotonic() < deadline:
                time.sleep(pause)
                continue
            outcome = "timeout" if busy else "unavailable" if state is None else state.value
            self._events.add(f"lease-{outcome}")
            return state is LeaseState.HELD
        raise AssertionError("pauses() never ends")
