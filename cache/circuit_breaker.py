"""The circuit breaker of a tier: no disk, mount or remote is waited for longer than told.

An operation runs on a thread of the pool. After a time-out, or several errors in a row, the
breaker stays open for a while, so that a dead tier costs one bound and not one a key.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar, final

from fuse.cache.background import WORKERS
from fuse.cache.errors import CacheTrustError, EntryRejectedError, TierBypassError

Result = TypeVar("Result")

# More operations than this at once are taken for hanging ones.
_MAX_THREADS = 64
_ERRORS_IN_A_ROW = 3
# Answers of a tier that works; they say nothing about its health.
_HEALTHY = (EntryRejectedError, TierBypassError, CacheTrustError)


@final
class CircuitBreaker:
    """Runs the operations of one tier, each with a bound. Safe to share by threads."""

    def __init__(self, name: str, seconds: float, retry_seconds: float) -> None:
        """Set the bounds.

        Args:
            name: the tier's name, for messages.
            seconds: the bound on each operation.
            retry_seconds: how long the breaker stays open after a failure.
        """
        self.name = name
        self.seconds = seconds
        self._retry_seconds = retry_seconds
        self._slots = threading.BoundedSemaphore(_MAX_THREADS)
        self._lock = threading.Lock()
        self._open_until = 0.0
        self._errors = 0

    def start(self, action: Callable[[], Result]) -> Future[Result]:
        """Start ``action`` and return its future, for ``wait``.

        Raises:
            TierBypassError: reason ``paused``, ``busy`` or ``shutdown``.
        """
        with self._lock:
            left = self._open_until - time.monotonic()
        if left > 0:
            text = f"the {self.name} tier failed and is not asked for another {left:.0f} s"
            raise TierBypassError("paused", text, warn=False)
        if not self._slots.acquire(blocking=False):
            text = f"{_MAX_THREADS} operations of the {self.name} tier are under way"
            raise TierBypassError("busy", text, warn=True)
        try:
            return WORKERS.run(lambda: self._watched(action), f"fuse-cache-{self.name}")
        except RuntimeError as error:
            self._slots.release()
            text = f"the {self.name} tier is not asked during shutdown"
            raise TierBypassError("shutdown", text, warn=False) from error

    def wait(self, future: Future[Result], seconds: float | None = None) -> Result:
        """Return the result of a started action, or raise what it raised.

        Args:
            future: from ``start``.
            seconds: how long to wait from now; the breaker's own bound where None.

        Raises:
            TierBypassError: reason ``timeout``; the breaker is open from then on.
        """
        bound = self.seconds if seconds is None else seconds
        try:
            return future.result(bound)
        except TimeoutError as error:
            if future.done():
                # It ended this moment, or the time-out is the action's own.
                return future.result()
            self._trip()
            text = f"the {self.name} tier did not answer within {bound:.3g} s"
            raise TierBypassError("timeout", text, warn=True) from error

    def run(self, action: Callable[[], Result]) -> Result:
        """Start ``action`` and wait for it.

        Raises:
            TierBypassError: as ``start`` and ``wait``; or whatever ``action`` raises.
        """
        return self.wait(self.start(action))

    def _watched(self, action: Callable[[], Result]) -> Result:
        """Run ``action`` on the pool's thread, and count what came of it before anyone sees it."""
        failed = False
        try:
            return action()
        except BaseException as error:
            failed = not isinstance(error, _HEALTHY)
            raise
        finally:
            self._slots.release()
            self._count(failed=failed)

    def _count(self, *, failed: bool) -> None:
        with self._lock:
            self._errors = self._errors + 1 if failed else 0
            trips = self._errors >= _ERRORS_IN_A_ROW
        if trips:
            self._trip()

    def _trip(self) -> None:
        with self._lock:
            self._errors = 0
            self._open_until = time.monotonic() + self._retry_seconds
