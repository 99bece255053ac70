"""Loading ahead: entries that will probably be asked for become objects before they are.

One background thread reads and loads them in the order given, while the program still
imports and builds what it needs. Nothing depends on it: a lookup takes what is ready,
waits for what is being loaded at that moment, and loads anything else itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, final

from fuse.cache.background import JobQueue
from fuse.cache.counters import Events
from fuse.cache.memory import Live
from fuse.cache.stored import StoredTier

MAX_BYTES = 256 << 20
"""Payloads loaded ahead at most, in bytes: a guess must not fill the memory."""

Load = Callable[[bytes], Any]


@final
class Preloads:
    """Objects loaded ahead. Safe to share by threads."""

    def __init__(self, events: Events) -> None:
        """Start with nothing; what goes wrong beside a tier is counted in ``events``."""
        self._queue = JobQueue(
            "fuse-cache-preload",
            sys.maxsize,
            lambda error: events.add(f"preload-{type(error).__name__}"),
        )
        # A lookup that comes before the loading cancels it.
        self._loads: dict[str, Future[Live | None]] = {}
        self._size = 0

    def start(self, tier: StoredTier, digests: Sequence[str], load: Load) -> None:
        """Load entries of ``tier`` in the background; what is not stored is left out."""
        for digest in digests:
            if digest not in self._loads:
                self._loads[digest] = loading = Future[Live | None]()
                self._queue.submit(partial(self._load, tier, digest, load, loading))

    def take(self, digest: str, seconds: float) -> Live | None:
        """Return what was loaded for ``digest``, once; None where the caller has to load it.

        One that is being loaded is waited for, at most ``seconds``.
        """
        loading = self._loads.pop(digest, None)
        if loading is None or loading.cancel():
            return None
        wait((loading,), seconds)
        return loading.result() if loading.done() else None

    def stop(self, seconds: float) -> None:
        """Load nothing more, drop what nobody took, and wait for the one that is loading."""
        loads, self._loads = self._loads, {}
        wait([one for one in loads.values() if not one.cancel()], seconds)

    def _load(self, tier: StoredTier, digest: str, load: Load, to: Future[Live | None]) -> None:
        if self._size >= MAX_BYTES or not to.set_running_or_notify_cancel():
            return
        live = None
        try:
            entry = tier.get(digest, count_miss=False)
            if entry is not None:
                live = tier.load(entry, load)
                self._size += len(entry.payload)
        finally:
            to.set_result(live)
