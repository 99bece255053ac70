"""What ``torch.profiler`` is told of the device: chunks, transfers, and what the engine did.

A profile is the timeline of a profiler's session. Like every timeline it has each chunk waited for,
so that a chunk's time is its own; without one nothing is waited for or written down.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from fuse.engine.timeline import Event, Timeline
from fuse.plan.plan import PlannedChunk
from fuse.trace.node import layouts_of

Here = tuple[int, int, int]
"""The call that is being made, as the profiler numbers calls; its stream's number, its device."""

KERNEL, TRANSFER, RUNTIME = range(3)
"""What the core makes of an activity: a kernel, a copy, or work of the host for the device."""
_KINDS = {"executing": KERNEL, "reading": TRANSFER, "writing": TRANSFER}
_NAMES = {"reading": "Memcpy DtoH", "writing": "Memcpy HtoD"}
_MOST_NAMES = 6


class Activity(NamedTuple):
    """One row of a profile; times are in nanoseconds since 1970.

    Attributes:
        kind: ``KERNEL``, ``TRANSFER`` or ``RUNTIME``.
        name: its operations, or what was done.
        start: when it began.
        stop: when it had ended.
        here: where the program was.
        operations: how many operations it ran.
        nbytes: what it read and made, in bytes.
        lines: the user's lines it comes from.
    """

    kind: int
    name: str
    start: int
    stop: int
    here: Here
    operations: int = 0
    nbytes: int = 0
    lines: str = ""


class Profile(Timeline):
    """A timeline that notes where the program was."""

    def __init__(self, here: Callable[[], Here]) -> None:
        """``here`` says where the calling thread is."""
        super().__init__()
        self._here = here
        self._places: list[tuple[Event, Here]] = []
        self._epoch = time.time_ns() - time.perf_counter_ns()

    def add(
        self, kind: str, start: float, stop: float, label: str = "", chunk: int | None = None
    ) -> None:
        """Note work, and the call that asked for it. Safe to use from any thread."""
        event = Event(kind, start, stop, label, len(self.traces), chunk)
        self._places.append((event, self._here()))

    def activities(self) -> list[Activity]:
        """Everything that was noted, in order."""
        return [self._activity(event, here) for event, here in self._places]

    def _activity(self, event: Event, here: Here) -> Activity:
        start, stop = (self._epoch + int(at * 1e9) for at in (event.start, event.stop))
        kind = _KINDS.get(event.kind, RUNTIME)
        chunk = self._chunk(event)
        if kind == KERNEL and chunk is not None:
            size, lines = _bytes_of(chunk), dict.fromkeys(node.source for node in chunk.nodes)
            return Activity(
                kind, name_of(chunk), start, stop, here, len(chunk.nodes), size, ", ".join(lines)
            )
        if event.label == "synchronize":
            kind, name = RUNTIME, "fuse: synchronize"
        elif kind == TRANSFER:
            name = _NAMES[event.kind]
        else:
            name = f"fuse: {event.kind} {event.label}".strip()
        return Activity(kind, name, start, stop, here)

    def _chunk(self, event: Event) -> PlannedChunk | None:
        """The chunk that ran; ``None`` where its trace failed."""
        if event.trace is None or event.chunk is None or event.trace >= len(self.traces):
            return None
        chunks = self.traces[event.trace][1].plan.chunks
        return chunks[event.chunk] if event.chunk < len(chunks) else None


def name_of(chunk: PlannedChunk) -> str:
    """A chunk's operators in order, each once: ``addmm+relu+sum``."""
    names = list(dict.fromkeys(node.op.partition(".")[0] for node in chunk.nodes))
    more = f"+{len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return "+".join(names[:_MOST_NAMES]) + more


def _bytes_of(chunk: PlannedChunk) -> int:
    """Of its inputs and outputs."""
    layouts = layouts_of(chunk.inputs, chunk.nodes)
    values = (*(leaf.value for leaf in chunk.inputs), *chunk.outputs)
    return sum(layouts[value].nbytes for value in values)
