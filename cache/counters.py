"""What happened in one tier, and the warnings that say so once."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Any, final

from fuse.cache.errors import CacheWarning
from fuse.errors import warn_or_print


@final
class Counters:
    """The counters of one tier. Safe to share by threads.

    ``hits``, ``misses`` and ``puts`` are numbers; ``bypasses``, ``rejections`` and
    ``failures`` are numbers by reason.
    """

    _NUMBERS = ("hits", "misses", "puts")
    _REASONS = ("bypasses", "rejections", "failures")

    def __init__(self) -> None:
        """Start at zero."""
        self._lock = threading.Lock()
        self._numbers: Counter[str] = Counter()
        self._reasons: dict[str, Counter[str]] = {name: Counter() for name in self._REASONS}

    def add(self, name: str) -> None:
        """Count one hit, miss or put."""
        with self._lock:
            self._numbers[name] += 1

    def add_reason(self, name: str, reason: str) -> None:
        """Count one bypass, rejection or failure under its reason."""
        with self._lock:
            self._reasons[name][reason] += 1

    def snapshot(self) -> dict[str, Any]:
        """Return the counts as a new plain dict."""
        with self._lock:
            numbers = {name: self._numbers[name] for name in self._NUMBERS}
            return numbers | {name: dict(counts) for name, counts in self._reasons.items()}


@final
class Events:
    """Things that happened, counted by name. Safe to share by threads."""

    def __init__(self) -> None:
        """Start at zero."""
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str) -> None:
        """Count one."""
        with self._lock:
            self._counts[name] += 1

    def snapshot(self) -> dict[str, int]:
        """Return the counts as a new dict."""
        with self._lock:
            return dict(self._counts)


@final
class Notices:
    """Warnings of the cache: each kind once, and only from the user's own call.

    What goes wrong on a background thread waits for the next call into the cache, whose line is
    the user's. Where a filter turns warnings into errors they are printed instead.
    """

    def __init__(self) -> None:
        """Start with nothing said."""
        self._lock = threading.Lock()
        self._said: set[str] = set()
        self._waiting: deque[str] = deque()

    def add(self, kind: str, text: str) -> None:
        """Say ``text`` at the next ``emit``, unless something of this kind was said before."""
        with self._lock:
            if kind not in self._said:
                self._said.add(kind)
                self._waiting.append(text)

    def emit(self, stacklevel: int) -> None:
        """Give out the waiting warnings; some 50 ns when there are none."""
        while self._waiting:
            try:
                text = self._waiting.popleft()
            except IndexError:
                return
            warn_or_print(text, CacheWarning, stacklevel + 1)
