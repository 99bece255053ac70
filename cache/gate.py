"""Bounded calls: nothing waits for a disk, a mount or a remote longer than it was told to.

An operation runs on a daemon thread of its own (some 60 us to start, against milliseconds
of work), because a thread that hangs in a dead mount can be neither stopped nor reused.
After a time-out, or several errors in a row, the gate stays shut for a while, so that a
dead tier costs one bound and not one a key.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar, final

from fuse.cache.errors import CacheTrustError, EntryRejectedError, TierBypassError

Result = TypeVar("Result")

# More operations than this at once are taken for hanging ones.
_MAX_THREADS = 64
_ERRORS_IN_A_ROW = 3
# Answers of a tier that works; they say nothing about its health.
_HEALTHY = (EntryRejectedError, TierBypassError, CacheTrustError)


def run_in_thread(action: Callable[[], Result], name: str) -> Future[Result]:
    """Run ``action`` on a new daemon thread; return its future.

    Raises:
        RuntimeError: the interpreter is shutting down and starts no threads.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            result = action()
        # Whatever it is belongs to the one who reads the future.
        except BaseException as error:  # noqa: BLE001
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


@final
class Gate:
    """Runs the operations of one tier, each with a bound. Safe to share by threads."""

    def __init__(self, name: str, seconds: float, retry_seconds: float) -> None:
        """Set the bounds.

        Args:
            name: the tier's name, for messages.
            seconds: the bound on each operation.
            retry_seconds: how long the gate stays shut after a failure.
        """
        self.name = name
        self.seconds = seconds
        self._retry_seconds = retry_seconds
        self._slots = threading.BoundedSemaphore(_MAX_THREADS)
        self._lock = threading.Lock()
        self._shut_until = 0.0
        self._errors = 0

    def start(self, action: Callable[[], Result]) -> Future[Result]:
        """Start ``action`` and return its future, for ``wait``.

        Raises:
            TierBypassError: reason ``paused``, ``busy`` or ``shutdown``.
        """
        with self._lock:
            left = self._shut_until - time.monotonic()
        if left > 0:
            text = f"the {self.name} tier failed and is not asked for another {left:.0f} s"
            raise TierBypassError("paused", text, warn=False)
        if not self._slots.acquire(blocking=False):
            text = f"{_MAX_THREADS} operations of the {self.name} tier are under way"
            raise TierBypassError("busy", text, warn=True)
        try:
            future = run_in_thread(action, f"fuse-cache-{self.name}")
        except RuntimeError as error:
            self._slots.release()
            text = f"the {self.name} tier is not asked during shutdown"
            raise TierBypassError("shutdown", text, warn=False) from error
        future.add_done_callback(self._finished)
        return future

    def wait(self, future: Future[Result], seconds: float | None = None) -> Result:
        """Return the result of a started action, or raise what it raised.

        Args:
            future: from ``start``.
            seconds: how long to wait from now; the gate's own bound where None.

        Raises:
            TierBypassError: reason ``timeout``; the gate is shut from then on.
        """
        bound = self.seconds if seconds is None else seconds
        try:
            return future.result(bound)
        except TimeoutError as error:
            if future.done():
                # It ended this moment, or the time-out is the action's own.
                return future.result()
            self._shut()
            text = f"the {self.name} tier did not answer within {bound:.3g} s"
            raise TierBypassError("timeout", text, warn=True) from error

    def run(self, action: Callable[[], Result]) -> Result:
        """Start ``action`` and wait for it.

        Raises:
            TierBypassError: as ``start`` and ``wait``; or whatever ``action`` raises.
        """
        return self.wait(self.start(action))

    def _finished(self, future: Future[Result]) -> None:
        self._slots.release()
        error = future.exception()
        with self._lock:
            if error is None or isinstance(error, _HEALTHY):
                self._errors = 0
                return
            self._errors += 1
            shut = self._errors >= _ERRORS_IN_A_ROW
        if shut:
            self._shut()

    def _shut(self) -> None:
        with self._lock:
            self._errors = 0
            self._shut_until = time.monotonic() + self._retry_seconds
