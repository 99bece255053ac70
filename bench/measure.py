"""Interleaved measurement: every contender runs in every round, so that noise hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def interleaved(
    contenders: dict[str, Callable[[], float]], seconds: float = 4.0, rounds: int = 60
) -> dict[str, float]:
    """Median seconds a step of each contender.

    All run once a round, for at most ``rounds`` rounds or about ``seconds`` in total. Each
    has been warmed up by the caller.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    start = time.perf_counter()
    for number in range(rounds):
        if number >= 5 and time.perf_counter() - start > seconds:
            break
        for name, step in contenders.items():
            before = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - before)
    return {name: statistics.median(found) for name, found in times.items()}


def warm_up(step: Callable[[], float], times: int = 4) -> None:
    """Run a step until it compiles nothing more."""
    for _ in range(times):
        step()
