"""The run-ahead limit: how many executables may have been handed on and still be running."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

LONGEST = 32
"""Executables in flight at most: enough to keep any device busy."""

Token = TypeVar("Token")


class RunAhead(Generic[Token]):
    """An in-order queue of running executables, each known by one of its results.

    Only the smallest result of each is held, so that the others die when PyTorch lets go of
    them. ``wait`` blocks until an array has been computed, ``done`` says whether it would return at
    once; both take arrays that have been donated since. A failure is raised where it surfaces.
    """

    def __init__(
        self,
        bound: int,
        wait: Callable[[list[Token]], None],
        done: Callable[[list[Token]], bool],
    ) -> None:
        """``bound`` is in bytes of results; the queue is shortened before it is exceeded."""
        self._bound, self._wait, self._done = bound, wait, done
        self._queue: deque[tuple[Token, int]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()  # not held while waiting

    def add(self, token: Token, nbytes: int) -> None:
        """Note an executable; waits for earlier ones where too much is in flight."""
        with self._lock:
            self._queue.append((token, nbytes))
            self._bytes += nbytes
        while len(self._queue) > LONGEST or (self._bytes > self._bound and len(self._queue) > 1):
            if (first := self._first()) is not None:  # another thread may have landed it
                self._land(first)

    def land_within(self, seconds: float) -> bool:
        """Wait at most so long; whether everything has been computed."""
        deadline = time.monotonic() + seconds
        while (first := self._first()) is not None:
            if self._done([first[0]]):
                self._land(first)
            elif time.monotonic() > deadline:
                return False
            else:
                time.sleep(0.001)
        return True

    def land_all(self) -> None:
        """Return once everything has been computed that was handed on before.

        Not what other threads hand on meanwhile, which may have no end.
        """
        with self._lock:
            before = tuple(self._queue)
        for one in before:
            self._land(one)

    def _first(self) -> tuple[Token, int] | None:
        try:
            return self._queue[0]
        except IndexError:
            return None

    def _land(self, first: tuple[Token, int]) -> None:
        """Wait for the first, and only then take it away: other threads wait for it as well."""
        try:
            self._wait([first[0]])
        finally:
            with self._lock:
                if self._first() is first:
                    self._queue.popleft()
                    self._bytes -= first[1]
