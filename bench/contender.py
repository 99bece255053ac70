"""Contenders in processes of their own, turn by turn.

In one process contenders change each other: the device keeps freed memory in the process, which
spares PyTorch's CPU kernels the page faults that their user pays (a training step of the small
GPT and a chain over a million numbers then take 0.8 of their time), and the OpenMP threads of
one go on spinning while the next one is measured. Here each has a process, as for its user, and
they take turns, so that noise from outside hits all alike.

With ``DEVICE=gpu`` they are on an NVIDIA GPU, the device and PyTorch's own; else on the CPU.

Run as ``python -m bench.contender PROGRAM NAME`` this is one contender: it says how many seconds
its first step took, and for each line that it is sent it runs a turn and answers with the seconds
of its steps, as JSON.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch

from bench.handwritten import HANDWRITTEN
from bench.processes import answered, answering, ask, asked, started
from bench.programs import PROGRAMS, Step, graphed

ALONE_SECONDS = 0.02
"""What a contender runs unmeasured at the start of its turn: until then the caches are full of
another's data, and the machine is not its own."""
STEPS, TURN_SECONDS = 5, 0.1
"""What a turn that counts has at least."""
ROUNDS = 12
RIVAL_DEVICES = {"cpu": "cpu", "gpu": "cuda"}
TIERS = {"default": "auto", "uncompiled": "uncompiled"}
"""The setting of tiers of the contenders whose setting is not that of ``bench/conftest.py``."""
OURS = ("strict", "default", "uncompiled", "fused", "compiled", "graph")
SETTLE_SECONDS = 60.0
"""What the policy of tiers has at most to decide, before a contender is measured."""


def rival_device() -> str:
    """PyTorch's own device beside ours: ``cpu``, or ``cuda`` with ``DEVICE=gpu``."""
    device = os.environ.get("DEVICE", "cpu")
    if device not in RIVAL_DEVICES:
        raise ValueError(f"DEVICE is one of {', '.join(RIVAL_DEVICES)}, and not {device}")
    return RIVAL_DEVICES[device]


def environment_of(name: str) -> dict[str, str]:
    """The variables of a contender's process.

    On a GPU they share its memory, which the first to start would take; and PyTorch has one
    accelerator a process, which is CUDA's in those of its own contenders.
    """
    environment = dict(os.environ)
    if name in TIERS:
        environment["FUSE_TIER"] = TIERS[name]
    if rival_device() == "cpu":
        return environment
    autoload = "1" if name in OURS else "0"
    return environment | {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload,
        "FUSE_AUTOLOAD": autoload,
    }


def turns(program: str, names: Sequence[str], rounds: int = ROUNDS) -> dict[str, Any]:
    """Median seconds a step of each contender, and what Fused compiled and ran on the host.

    ``names`` are "cpu eager" or "cuda eager", "torch.compile", "jax.jit", and the device's:
    "default", which has no setting, "fused", all compiled, "uncompiled", "strict", "compiled" by
    ``torch.compile``, "graph".
    ``first`` are the seconds of each one's first step, compilers included.
    """
    times: dict[str, list[float]] = {name: [] for name in names}
    contenders, first = {}, {}
    with ExitStack() as stack:
        for name in names:
            process = stack.enter_context(
                started("bench.contender", program, name, environment=environment_of(name))
            )
            contenders[name], first[name] = process, answered(process)
        for _ in range(rounds):
            for name, process in contenders.items():
                times[name] += ask(process, "turn")
        stats = ask(contenders["fused"], "stats")
    return {
        "seconds": {name: statistics.median(found) for name, found in times.items()},
        "first": first,
        **stats,
    }


def _step(program: str, name: str) -> Step:
    """The contender's step; a mode of the device is set for the whole process."""
    build = {found.name: found for found in PROGRAMS}[program].build
    if name == "jax.jit":
        return HANDWRITTEN[program]()
    if name in OURS:
        _check_platform()
        _fuse().set_mode("strict" if name == "strict" else "fused")
        step = build("tpu")
        ways = {"compiled": torch.compile, "graph": graphed}
        return ways[name](step) if name in ways else step
    step = build(rival_device())
    return torch.compile(step) if name == "torch.compile" else step


def _check_platform() -> None:
    """Start the device; on the CPU nothing would be compared with a GPU."""
    torch.tpu.init()
    found = torch.tpu.get_device_name()
    if rival_device() == "cuda" and found == "cpu":
        raise RuntimeError("DEVICE=gpu, and JAX found no GPU: fuse doctor says what is missing")


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
    answer = answering()
    step = _step(program, name)
    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    if name == "default":
        _fuse().explain(step, steady=True, seconds=SETTLE_SECONDS)
    warm_up(step, 8)
    if name == "fused":
        _fuse().reset_stats()
    answer(first)
    for (what,) in asked():
        if what == "turn":
            answer(_turn(step))
        else:
            stats = _fuse().stats()
            answer({key: stats[key] for key in ("compiles", "host_fallbacks")})


if __name__ == "__main__":
    main(*sys.argv[1:])
