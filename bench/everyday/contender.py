"""One loop on one device, in a process of its own: ``python -m bench.everyday.contender``.

It answers these lines with JSON:

    first STEPS            seconds of the first steps, from the first call
    settle STEPS SECONDS   warms up for so many steps and seconds, and until nothing is being
                           compiled, at most four times as long; then counts anew
    turn SECONDS           seconds a step by the clock, and of all cores' time: the means over whole
                           cycles that take at least as long
    stats                  the device's counters, and the steps that they are of
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import torch

from bench.everyday.common import Loop, Step
from bench.everyday.loops import LOOPS
from bench.processes import answering, asked

ALONE_SECONDS = 0.02
"""What runs unmeasured at the start of a turn: until then the caches are full of another's data."""


class Contender:
    """A built loop, and how many steps of it have run."""

    def __init__(self, loop: Loop, device: str) -> None:
        self.device, self.cycle = device, loop.cycle
        _start(device)
        self.step: Step = loop.build(device)
        self.last: torch.Tensor | float = 0.0  # alive until the next step's, as a loop's variable
        self.done = 0

    def run(self, steps: int) -> None:
        """Run steps, to their end on the device."""
        for _ in range(steps):
            self.last = self.step()
        if self.device == "tpu":
            torch.tpu.synchronize()
        self.done += steps

    def first(self, steps: str) -> float:
        """Seconds of the first steps."""
        start = time.perf_counter()
        self.run(int(steps))
        return time.perf_counter() - start

    def settle(self, steps: str, seconds: str) -> dict[str, float]:
        """Warm up; the steps and seconds that it took, the first ones not included."""
        self.done, start, passed = 0, time.perf_counter(), 0.0
        while (
            self.done < int(steps)
            or passed < float(seconds)
            or (passed < 4 * float(seconds) and self._pending())
        ):
            self.run(self.cycle)
            passed = time.perf_counter() - start
        taken, self.done = self.done, 0
        if self.device == "tpu":
            _fuse().reset_stats()
        return {"steps": taken, "seconds": passed}

    def _pending(self) -> bool:
        return self.device == "tpu" and _fuse().stats()["background"]["pending"] > 0

    def turn(self, seconds: str) -> tuple[float, float]:
        """Seconds a step, by the clock and of all cores."""
        self._cycles(ALONE_SECONDS)
        return self._cycles(float(seconds))

    def stats(self) -> dict[str, Any]:
        """Counters since the warm-up."""
        found = _fuse().stats()
        background = found["background"]
        return {
            "steps": self.done,
            "recorded": found["operations"],
            "uncompiled": found["uncompiled_operations"],
            "uncompiled chunks": background["uncompiled_chunks"],
            "pending": background["pending"],
            **{key: found[key] for key in ("known_operations", "traces", "chunks", "compiles")},
            **{key: found[key] for key in ("cuts", "host_fallbacks")},
        }

    def _cycles(self, seconds: float) -> tuple[float, float]:
        before, start, cores = self.done, time.perf_counter(), time.process_time()
        self.run(self.cycle)
        while time.perf_counter() - start < seconds:
            self.run(self.cycle)
        steps = self.done - before
        return (time.perf_counter() - start) / steps, (time.process_time() - cores) / steps


def _start(device: str) -> None:
    """What is excluded from the first steps: the device's start, and autograd's on the CPU."""
    weight = torch.ones(4, 4, requires_grad=True)
    (torch.ones(2, 4) @ weight).relu().mean().backward()
    torch.ones(1, device=device).add(1).tolist()


def _fuse() -> Any:
    # Lazily: the process on the CPU is that of somebody without it.
    import fuse  # noqa: PLC0415

    return fuse


def main(name: str, device: str) -> None:
    """Be one contender until standard input ends."""
    answer = answering()
    warnings.simplefilter("ignore")
    contender = Contender(LOOPS[name], device)
    for what, *arguments in asked():
        answer(getattr(contender, what)(*arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
