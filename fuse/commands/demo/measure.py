"""Train a program on the CPU or in one mode of the device, and measure every step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import fuse
from fuse.commands.demo.programs import Program
from fuse.device import lazy

CPU = "cpu"
AT_ONCE = "compiled"
RUNNERS = (CPU, "debug", "strict", "fused", AT_ONCE)
TITLES = {
    CPU: "CPU eager",
    "debug": "Debug",
    "strict": "Strict",
    "fused": "Fused",
    AT_ONCE: "Fused, compiled",
}


@dataclass(frozen=True)
class Counts:
    """What ``fuse.stats()`` says of a run.

    Attributes:
        uncompiled: operations that PyTorch's CPU kernels ran, a step, over the second half of the
            run.
        recorded: the others, likewise.
        chunks: executed, likewise.
        compiles: executables made, likewise; 0 once the program is known.
        all_compiles: executables made in the whole run, evaluation included.
        compile_seconds: the time they took.
        loaded: executables that the disk or shared cache had.
        host_fallbacks: calls by operator that ran on the host.
    """

    uncompiled: float
    recorded: float
    chunks: float
    compiles: float
    all_compiles: int
    compile_seconds: float
    loaded: int
    host_fallbacks: dict[str, int]


@dataclass(frozen=True)
class Run:
    """What one training showed.

    Attributes:
        runner: one of ``RUNNERS``: ``cpu``, a mode, or ``compiled``: Fused with everything compiled
            at its first call.
        losses: one a step, read by the host at its end.
        seconds: wall-clock time of each step, with that read.
        score: the program's figure on data it has not seen, after the last step.
        counts: ``None`` on the CPU, where nothing is recorded.
    """

    runner: str
    losses: tuple[float, ...]
    seconds: tuple[float, ...]
    score: float
    counts: Counts | None

    @property
    def milliseconds(self) -> float:
        """The median step of the second half, in milliseconds."""
        return 1e3 * statistics.median(self.seconds[len(self.seconds) // 2 :])


READ_EVERY = 10
"""Steps between two reads of the losses, as a training loop that logs now and then has it. A
step's time is its share of the time between two reads, the reads included."""


def measure(program: Program, runner: str, steps: int, advance: Callable[[float], None]) -> Run:
    """Train ``program`` anew for ``steps`` steps; ``advance(loss)`` is called after each.

    ``runner`` is one of ``RUNNERS``. The device's mode is what it was afterwards; its
    counters are reset.
    """
    if runner == CPU:
        return _train(program, runner, steps, advance, stats=dict)
    before = fuse.get_mode()
    fuse.set_mode("fused" if runner == AT_ONCE else runner)
    fuse.reset_stats()
    try:
        with _compiled_at_once() if runner == AT_ONCE else nullcontext():
            return _train(program, runner, steps, advance, stats=fuse.stats)
    finally:
        fuse.set_mode(before)


@contextmanager
def _compiled_at_once() -> Iterator[None]:
    """As with ``FUSE_TIER=compiled``: a cut waits for its executables."""
    core, engine = lazy.core(), lazy.engine()
    compiler = engine.planning.compiler
    before, compiler.background = compiler.background, False
    lazy.bound_uncompiled(core, engine)
    try:
        yield
    finally:
        compiler.background = before
        lazy.bound_uncompiled(core, engine)


def _train(
    program: Program,
    runner: str,
    steps: int,
    advance: Callable[[float], None],
    stats: Callable[[], dict[str, Any]],
) -> Run:
    training = program.start("cpu" if runner == CPU else "tpu", steps)
    losses: list[float] = []
    seconds: list[float] = []
    start = half = stats()
    halfway = 0
    for first in range(0, steps, READ_EVERY):
        if first <= steps // 2:
            half, halfway = stats(), first
        count = min(READ_EVERY, steps - first)
        started = time.perf_counter()
        found = [training.step() for _ in range(count)]
        losses += [loss.item() for loss in found]
        seconds += [(time.perf_counter() - started) / count] * count
        for loss in losses[-count:]:
            advance(loss)
    trained = stats()
    score = training.evaluate()
    counts = _counts(start, half, trained, stats(), steps - halfway) if trained else None
    return Run(runner, tuple(losses), tuple(seconds), score, counts)


def _counts(
    start: dict[str, Any],
    half: dict[str, Any],
    trained: dict[str, Any],
    end: dict[str, Any],
    steps: int,
) -> Counts:
    def per_step(key: str) -> float:
        return float(trained[key] - half[key]) / steps

    return Counts(
        uncompiled=per_step("uncompiled_operations"),
        recorded=per_step("operations"),
        chunks=per_step("chunks"),
        compiles=per_step("compiles"),
        all_compiles=end["compiles"],
        compile_seconds=end["compile_seconds"],
        loaded=_loaded(end) - _loaded(start),
        host_fallbacks=end["host_fallbacks"],
    )


def _loaded(stats: dict[str, Any]) -> int:
    return sum(tier["hits"] for name, tier in stats["cache"].items() if name != "memory")
