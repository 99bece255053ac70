"""Executables that have been handed on and may still be running."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

LONGEST = 32
"""Executables in flight at most: enough to keep any device busy."""


class Flight:
    """An in-order queue of running executables, each known by one of its results.

    Only the smallest result of each is held, so that the others die when PyTorch lets go of
    them. ``wait`` blocks until an array has been computed, ``done`` says whether it would return at
    once; both take arrays that have been donated since. A failure is raised where it surfaces.
    """

    def __init__(
        self,
        bound: int,
        wait: Callable[[list[Any]], None],
        done: Callable[[list[Any]], bool],
    ) -> None:
        """``bound`` is in bytes of results; the queue is shortened before it is exceeded."""
        self._bound, self._wait, self._done = bound, wait, done
        self._queue: deque[tuple[Any, int]] = deque()
        self._bytes = 0

    def add(self, token: Any, nbytes: int) -> None:
        """Note an executable; waits for earlier ones where too much is in flight."""
        self._queue.append((token, nbytes))
        self._bytes += nbytes
        while len(self._queue) > LONGEST or (self._bytes > self._bound and len(self._queue) > 1):
            self._land()

    def land_within(self, seconds: float) -> bool:
        """Wait at most so long; whether everything has been computed."""
        deadline = time.monotonic() + seconds
        while self._queue:
            if self._done([self._queue[0][0]]):
                self._land()
            elif time.monotonic() > deadline:
                return False
            else:
                time.sleep(0.001)
        return True

    def land_all(self) -> None:
        """Return once everything has been computed."""
        while self._queue:
            self._land()

    def _land(self) -> None:
        token, nbytes = self._queue.popleft()
        self._bytes -= nbytes
        self._wait([token])
