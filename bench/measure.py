"""Interleaved measurement: every contender runs in every round, so that noise hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

STEPS = 5
"""Measured steps of a contender in a round."""
ALONE_SECONDS = 0.02
"""What a contender runs unmeasured before them: until then the threads of the one before it
still spin on the cores (OpenMP's for some milliseconds), and the caches are full of its data.
Nobody's training loop changes the engine at every step."""


def interleaved(
    contenders: dict[str, Callable[[], float]], seconds: float = 6.0, rounds: int = 40
) -> dict[str, float]:
    """Median seconds a step of each contender.

    In a round each contender runs for ``ALONE_SECONDS``, at least one step, and then
    ``STEPS`` steps that count; there are at most ``rounds`` rounds, and at least three, in
    about ``seconds`` in total. Each contender has been warmed up by the caller.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    start = time.perf_counter()
    for number in range(rounds):
        if number >= 3 and time.perf_counter() - start > seconds:
            break
        for name, step in contenders.items():
            settle(step)
            for _ in range(STEPS):
                before = time.perf_counter()
                step()
                times[name].append(time.perf_counter() - before)
    return {name: statistics.median(found) for name, found in times.items()}


def settle(step: Callable[[], float]) -> None:
    """Run a step, unmeasured, until the machine is its own."""
    start = time.perf_counter()
    step()
    while time.perf_counter() - start < ALONE_SECONDS:
        step()


def warm_up(step: Callable[[], float], times: int = 4) -> None:
    """Run a step until it compiles nothing more."""
    for _ in range(times):
        step()
