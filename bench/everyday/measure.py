"""Measures one loop: CPU eager and the device, turn by turn, each in a process of its own."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bench.processes import ask, finish, started

SETTLED_STEPS = 300
"""Steps of the warm-up at least."""
CPU_SECONDS = 0.5
"""CPU eager has less to warm up: no compiler."""
TIERS = ("auto", "compiled", "uncompiled")
"""What a tier sets besides ``FUSE_TIER``."""


@dataclass(frozen=True)
class Options:
    """What is measured, and for how long."""

    what: tuple[str, ...] = ("steady", "first", "warm")
    tier: str = "auto"
    steps: int = 500
    rounds: int = 6
    turn_seconds: float = 0.3
    warm_seconds: float = 8.0


def environment(device: str, tier: str, directory: str) -> dict[str, str]:
    """Default settings, one thread, a cache of its own; without the package for the CPU."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FUSE_") or name == "FUSE_BUILD_DIR"
    }
    kept["OMP_NUM_THREADS"] = "1"
    if device == "cpu":
        return kept | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    chosen = {} if tier == "auto" else {"FUSE_TIER": tier}
    return kept | {"FUSE_CACHE_DIR": directory} | chosen


def measure(name: str, options: Options) -> dict[str, Any]:
    """One loop's results, by what was asked for.

    ``first`` and ``warm`` are seconds of the first steps, by contender; ``warm`` is a second
    process, with the cache that the one before left. ``steady`` goes on where ``first`` ended.
    """
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:

        def contender(device: str) -> subprocess.Popen[str]:
            variables = environment(device, options.tier, directory)
            module = "bench.everyday.contender"
            return stack.enter_context(started(module, name, device, environment=variables))

        both = {device: contender(device) for device in ("cpu", "tpu")}
        if {"first", "warm"} & set(options.what):
            ask_first = f"first {options.steps}"
            found["first"] = {device: ask(process, ask_first) for device, process in both.items()}
        if "steady" in options.what:
            found["steady"] = _steady(both, options)
        for process in both.values():
            finish(process)
        if "warm" in options.what:
            again = contender("tpu")
            found["warm"] = {"cpu": found["first"]["cpu"], "tpu": ask(again, ask_first)}
    return found


def _steady(both: dict[str, subprocess.Popen[str]], options: Options) -> dict[str, Any]:
    """Seconds a step of each, and what the device counted meanwhile."""
    settled = ask(both["tpu"], f"settle {SETTLED_STEPS} {options.warm_seconds}")
    ask(both["cpu"], f"settle {SETTLED_STEPS // 10} {CPU_SECONDS}")
    turns: dict[str, list[tuple[float, float]]] = {device: [] for device in both}
    for _ in range(options.rounds):
        for device, process in both.items():
            turns[device].append(ask(process, f"turn {options.turn_seconds}"))
    seconds, cores = (
        {device: statistics.median(turn[part] for turn in found) for device, found in turns.items()}
        for part in (0, 1)
    )
    counted = ask(both["tpu"], "stats")
    return {**seconds, "cores": cores, "turns": turns, "settled": settled, "stats": counted}
