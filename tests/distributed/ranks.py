"""Runs a function of a test module as the ranks of a group: processes of their own, with an end."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from fuse.ports import free_port
from tests.forked import Process

SECONDS = 100.0
"""How long all ranks together may take, starts included: ten times what it takes alone."""

ALONE = 40.0

MEETING = timedelta(seconds=60)
"""How long ranks wait for each other's processes to start, however short their group's time-out."""


@dataclass(frozen=True)
class Ended:
    """One rank's end: its exit code (negative: the signal) and what it printed."""

    code: int
    output: str


def start(
    function: Callable[..., object], size: int, backend: str | None, timeout: float, **env: str
) -> list[tuple[Process, Any]]:
    """Start every rank; their output goes to files."""
    port = str(free_port())
    ranks = []
    for rank in range(size):
        output = tempfile.TemporaryFile()  # noqa: SIM115  (closed by whoever reads it)
        settings = {
            **os.environ,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "JAX_PLATFORMS": "cpu",
            "OMP_NUM_THREADS": "1",
            **env,
        }
        line = ["-m", "tests.distributed.ranks", function.__module__]
        line += [function.__qualname__, backend or "", str(timeout)]
        # Neighbours agree on no hash seed and no address, as ranks that a launcher starts.
        process = Process(line, settings, output, session=True, server=rank % 2)
        ranks.append((process, output))
    return ranks


def finish(ranks: list[tuple[Process, Any]], seconds: float) -> list[Ended]:
    """Wait for all ranks at most so long, and for those that another one's failure leaves alone
    ``ALONE`` seconds; who has not ended then is killed, with its children."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        codes = [process.poll() for process, _ in ranks]
        if None not in codes:
            break
        if any(codes):
            deadline = min(deadline, time.monotonic() + ALONE)
        time.sleep(0.05)
    ended = []
    for process, output in ranks:
        late = process.poll() is None
        if late:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with output:
            output.seek(0)
            text = output.read().decode(errors="replace")
        ended.append(Ended(process.returncode, text + ("\n(killed: too late)" if late else "")))
    return ended


def run(
    function: Callable[..., object],
    size: int = 2,
    backend: str | None = None,
    seconds: float = SECONDS,
    timeout: float = 60.0,
    **env: str,
) -> list[Ended]:
    """Run ``function(rank, size)`` on every rank, in a group of ``backend``; how each ended."""
    return finish(start(function, size, backend, timeout, **env), seconds)


def passes(function: Callable[..., object], *arguments: Any, **options: Any) -> None:
    """Fail with every rank's output unless all ranks end well."""
    ended = run(function, *arguments, **options)
    if any(one.code != 0 for one in ended):
        texts = [f"rank {at} ended with {one.code}:\n{one.output}" for at, one in enumerate(ended)]
        raise AssertionError("\n".join(texts))


def main(module: str, name: str, backend: str, timeout: str) -> None:
    """One rank; with the backend "none" the function makes the group."""
    function = getattr(importlib.import_module(module), name)
    if backend != "none":
        store, rank, size = next(dist.rendezvous("env://", timeout=MEETING))
        dist.init_process_group(
            backend or None,
            timeout=timedelta(seconds=float(timeout)),
            store=store,
            rank=rank,
            world_size=size,
        )
    function(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
