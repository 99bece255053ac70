"""What a program reads of a plan's results, so that it is on its way when the program asks.

Of a device with memory of its own a read copies, after the host has waited for the result: several
times the copy's own time, for it only begins then. A loop reads the same of every step. What it has
read once is asked for from then on, as soon as the chunk that makes it has been handed on.
"""

from __future__ import annotations

from typing import Any, Final

from fuse.engine.runnable import Runnable

LARGEST: Final = 4096
"""Bytes up to which a result is asked for: metrics, tokens. Copies of larger ones take longer than
what is saved, and the program may leave them where they are the next time."""


class HostReads:
    """Which results of the plan that ran last are read. For the thread that runs plans."""

    def __init__(self) -> None:
        self._last: tuple[Runnable, list[int]] | None = None

    def ran(self, runnable: Runnable, results: list[Any]) -> None:
        """Note the arrays of a plan's live values, without holding them."""
        self._last = (runnable, [id(results[at]) for at in _small(runnable)])

    def read(self, array: Any) -> None:
        """Note that the program reads ``array``; what another plan made is none of ours."""
        if self._last is None:
            return
        runnable, arrays = self._last
        if id(array) in arrays:
            ask_for(runnable, runnable.plan.live[_small(runnable)[arrays.index(id(array))]])


def _small(runnable: Runnable) -> tuple[int, ...]:
    """The positions of the live values that are worth asking for."""
    if runnable.small is None:
        layouts = runnable.plan.trace.layouts()
        sizes = [layouts[value].nbytes for value in runnable.plan.live]
        runnable.small = tuple(at for at, nbytes in enumerate(sizes) if nbytes <= LARGEST)
    return runnable.small


def ask_for(runnable: Runnable, value: int) -> None:
    """Have the stage that makes ``value`` ask for it; a leaf has none."""
    for stage, planned in zip(runnable.stages, runnable.plan.chunks, strict=True):
        if value in planned.outputs:
            place = planned.outputs.index(value)
            stage.read = tuple({*stage.read, place})
            return
