"""Contenders in processes of their own, turn by turn.

In one process contenders change each other: the device keeps freed memory in the process, which
spares PyTorch's CPU kernels the page faults that their user pays (a training step of the small
GPT and a chain over a million numbers then take 0.8 of their time), and the OpenMP threads of
one go on spinning while the next one is measured. Here each has a process, as for its user, and
they take turns, so that noise from outside hits all alike.

Run as ``python -m bench.contender PROGRAM NAME`` this is one contender: it says how many seconds
its first step took, and for each line that it is sent it runs a turn and answers with the seconds
of its steps, as JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from bench.handwritten import HANDWRITTEN
from bench.programs import PROGRAMS, Step

ALONE_SECONDS = 0.02
"""What a contender runs unmeasured at the start of its turn: until then the caches are full of
another's data, and the machine is not its own."""
STEPS, TURN_SECONDS = 5, 0.1
"""What a turn that counts has at least."""
ROUNDS = 12
LONGEST = 900.0
"""Seconds after which a contender that has not finished is ended, and the benchmark fails."""


def turns(program: str, names: Sequence[str], rounds: int = ROUNDS) -> dict[str, Any]:
    """Median seconds a step of each contender, and what Fused compiled and ran on the host.

    ``names`` are "cpu eager", "torch.compile", "strict", "fused", "compiled" or "jax.jit".
    ``first`` are the seconds of each one's first step, compilers included.
    """
    times: dict[str, list[float]] = {name: [] for name in names}
    with ExitStack() as stack:
        started = {name: stack.enter_context(_started(program, name)) for name in names}
        asked = {name: process for name, (process, _) in started.items()}
        for _ in range(rounds):
            for name, process in asked.items():
                times[name] += _ask(process, "turn")
        stats = _ask(asked["fused"], "stats")
    return {
        "seconds": {name: statistics.median(found) for name, found in times.items()},
        "first": {name: first for name, (_, first) in started.items()},
        **stats,
    }


@contextmanager
def _started(program: str, name: str) -> Iterator[tuple[subprocess.Popen[str], float]]:
    command = [sys.executable, "-m", "bench.contender", program, name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        watch = threading.Timer(LONGEST, process.kill)
        watch.start()
        try:
            yield process, _answer(process)
        finally:
            watch.cancel()
            process.kill()


def _ask(process: subprocess.Popen[str], what: str) -> Any:
    assert process.stdin is not None
    process.stdin.write(f"{what}\n")
    process.stdin.flush()
    return _answer(process)


def _answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args} ended with {process.wait()}: its errors are above")
    return json.loads(line)


def _step(program: str, name: str) -> Step:
    """The contender's step; a mode of the device is set for the whole process."""
    build = {found.name: found for found in PROGRAMS}[program].build
    if name == "jax.jit":
        return HANDWRITTEN[program]()
    if name in ("strict", "fused", "compiled"):
        torch.tpu.init()
        _fuse().set_mode("strict" if name == "strict" else "fused")
        return torch.compile(build("tpu")) if name == "compiled" else build("tpu")
    step = build("cpu")
    return torch.compile(step) if name == "torch.compile" else step


def _fuse() -> Any:
    # Lazily: the processes of other contenders are those of people without it.
    import fuse  # noqa: PLC0415

    return fuse


def warm_up(step: Step, times: int = 4) -> None:
    """Run a step until it compiles nothing more."""
    for _ in range(times):
        step()


def _turn(step: Step) -> list[float]:
    times: list[float] = []
    start = time.perf_counter()
    step()
    while time.perf_counter() - start < ALONE_SECONDS:
        step()
    start = time.perf_counter()
    while len(times) < STEPS or time.perf_counter() - start < TURN_SECONDS:
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    return times


def main(program: str, name: str) -> None:
    """Be one contender until standard input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what a program prints is no answer

    def answer(found: Any) -> None:
        print(json.dumps(found), file=answers, flush=True)

    step = _step(program, name)
    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    warm_up(step, 8)
    if name == "fused":
        _fuse().reset_stats()
    answer(first)
    for line in sys.stdin:
        if line.strip() == "turn":
            answer(_turn(step))
        else:
            stats = _fuse().stats()
            answer({key: stats[key] for key in ("compiles", "host_fallbacks")})


if __name__ == "__main__":
    main(*sys.argv[1:])
