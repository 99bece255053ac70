"""What the engine did and when, written down while ``fuse.explain`` watches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuse.engine.runnable import Runnable

KINDS = ("recording", "planning", "compiling", "loading", "executing", "reading", "writing")
"""What time goes into. ``recording`` is the program itself and the recording of its calls."""


@dataclass(slots=True)
class Event:
    """A stretch of time, in seconds of ``time.perf_counter``; ``trace`` and ``chunk`` are
    numbers where it belongs to one.
    """

    kind: str
    start: float
    stop: float
    label: str = ""
    trace: int | None = None
    chunk: int | None = None


class Timeline:
    """Events, and the traces that were cut: ``(reason, what ran)`` in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.traces: list[tuple[str, Runnable]] = []

    def add(
        self, kind: str, start: float, stop: float, label: str = "", chunk: int | None = None
    ) -> None:
        """Note work for the trace that is cut now. Safe to use from any thread."""
        self.events.append(Event(kind, start, stop, label, len(self.traces), chunk))

    @contextmanager
    def span(self, kind: str, label: str = "", chunk: int | None = None) -> Iterator[None]:
        """Time the block; what it raises passes through, and its time counts all the same."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(kind, start, time.perf_counter(), label, chunk)


def span(timeline: Timeline | None, kind: str, label: str = "") -> AbstractContextManager[object]:
    """Time a block for ``timeline``, where there is one."""
    return nullcontext() if timeline is None else timeline.span(kind, label)


def recording(events: list[Event], start: float, stop: float) -> list[Event]:
    """What is left of ``start`` to ``stop`` between the events: the program's own time."""
    found: list[Event] = []
    at = start
    for event in sorted(events, key=lambda event: event.start):
        if event.start > at:
            found.append(Event("recording", at, event.start))
        at = max(at, event.stop)
    if stop > at:
        found.append(Event("recording", at, stop))
    return found
