"""Taking turns: the wait for a lease, with its bound."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import final

from fuse.cache.counters import Events
from fuse.cache.gate import run_in_thread
from fuse.cache.key import Key
from fuse.cache.lease import Lease, LeaseState
from fuse.cache.level import Level
from fuse.cache.locks import pauses


@final
class Turns:
    """Gives out the leases of one disk tier."""

    def __init__(self, level: Level, directory: Path, seconds: float, events: Events) -> None:
        """Set the bound of a wait; outcomes are counted in ``events``."""
        self._level = level
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
        """Give a lease back. Not through the gate, which may be shut: this has to happen."""
        close = partial(lease.close, stored=stored)
        self._level.guard(
            "lease", lambda: self._level.gate.wait(run_in_thread(close, "fuse-cache-lease"))
        )

    def _wait(self, lease: Lease) -> bool:
        deadline = time.monotonic() + self._seconds
        for turn, pause in enumerate(pauses()):
            state = self._level.guard("lease", lambda: self._level.gate.run(lease.poll))
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
