"""What a program's steps take while executables are made in the background.

    python -m bench.while_compiling                 # 40 executables
    python -m bench.while_compiling --executables 8

A variational autoencoder of linear layers is trained uncompiled, as streams are that have not come
back yet. Meanwhile executables of other programs are made, training steps of nets of as many
different widths; they are planned before the clock starts. Printed are the distributions of
the step's time with CPU eager, on the device while nothing is compiled, while a worker process
compiles half of them, while threads of this process compile the others, and after that.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn

from fuse.config import TIERS
from fuse.device import lazy
from fuse.engine.compiler import Compiler

STEPS = 600
"""Steps of a phase in which nothing is compiled."""


class Autoencoder(nn.Module):
    """Linear layers to a mean and a variance, and back."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.into = nn.Sequential(nn.Linear(256, width), nn.ReLU())
        self.mean, self.spread = nn.Linear(width, 16), nn.Linear(width, 16)
        self.out = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 256))

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        inner = self.into(x)
        mean, spread = self.mean(inner), self.spread(inner)
        made = self.out(mean + noise * (0.5 * spread).exp())
        distance = nn.functional.binary_cross_entropy_with_logits(made, x)
        return distance - 0.5 * (1 + spread - mean.pow(2) - spread.exp()).mean()


def training(device: str, width: int = 128) -> Callable[[], float]:
    """A step that reads its loss."""
    torch.manual_seed(0)
    model = Autoencoder(width).to(device)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    x, noise = torch.rand(64, 256).to(device), torch.randn(64, 16).to(device)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(x, noise)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


class Collected:
    """Chunks that are asked for while this is the compiler's way to start one; none is made."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[Any, Any, Any]] = {}

    def __call__(self, compiler: Compiler, *asked: Any, **options: Any) -> Future[Any]:
        self.asked[asked[2].digest] = (asked[0], asked[1], asked[2])
        return Future()


def collected(count: int) -> list[tuple[Any, Any, Any]]:
    """Backend, chunk and key of ``count`` executables or more that nobody has made."""
    start, found = Compiler._start, Collected()
    lazy.core().set_tier(TIERS.index("compiled"))
    Compiler._start = lambda *asked, **more: found(*asked, **more)  # type: ignore[method-assign]
    try:
        for width in range(24, 1024, 8):
            step = training("tpu", width)
            step(), step()
            if len(found.asked) >= count:
                break
    finally:
        Compiler._start = start  # type: ignore[method-assign]
        lazy.core().set_tier(TIERS.index("uncompiled"))
    return list(found.asked.values())[:count]


def times(step: Callable[[], float], goes_on: Iterator[bool]) -> list[float]:
    """Milliseconds of each step."""
    found = []
    for _ in goes_on:
        started = time.perf_counter()
        step()
        found.append(1e3 * (time.perf_counter() - started))
    return found


def said(name: str, found: list[float]) -> None:
    """A line of the table."""
    ordered = sorted(found)
    p90, p99 = (ordered[int(part * len(ordered))] for part in (0.9, 0.99))
    print(
        f"{name:24} {len(found):6} {statistics.median(found):8.2f} {p90:8.2f} {p99:8.2f} "
        f"{ordered[-1]:8.2f} {statistics.fmean(found):8.2f}",
        flush=True,
    )


def pending(futures: list[Future[Any]]) -> Iterator[bool]:
    """While one of them is not done."""
    while not all(future.done() for future in futures):
        yield True


def measure(count: int) -> None:
    """Print the table."""
    eager = training("cpu")
    times(eager, iter([True] * 50))
    torch.zeros(1, device="tpu")
    waiting = collected(count)
    step = training("tpu")
    times(step, iter([True] * 100))
    print(
        f"{'ms a step':24} {'steps':>6} {'median':>8} {'p90':>8} {'p99':>8} {'max':>8} {'mean':>8}"
    )
    said("CPU eager", times(eager, iter([True] * STEPS)))
    said("uncompiled, alone", times(step, iter([True] * STEPS)))
    backend = waiting[0][0]
    made(step, "a worker compiles", waiting[::2])
    backend.workers = lambda: None
    made(step, "its threads compile", waiting[1::2])
    del backend.workers
    said("after it", times(step, iter([True] * STEPS)))


def made(step: Callable[[], float], name: str, waiting: list[tuple[Any, Any, Any]]) -> None:
    """Steps while these are compiled, and what that took."""
    compiler = lazy.engine().planning.compiler
    before, started = compiler.stats(), time.perf_counter()
    futures = [compiler._start(*one) for one in waiting]
    said(name, times(step, pending(futures)))
    seconds, after = time.perf_counter() - started, compiler.stats()
    of_workers = after["workers"] - before["workers"]
    failed = sum(future.exception() is not None for future in futures)
    print(
        f"  {len(futures)} in {seconds:.1f} s, {of_workers} by workers, {failed} failed", flush=True
    )


def main() -> None:
    """Measure with an empty cache."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executables", type=int, default=40)
    with tempfile.TemporaryDirectory() as directory:
        os.environ |= {"FUSE_CACHE_DIR": directory, "FUSE_TIER": "uncompiled"}
        measure(parser.parse_args().executables)


if __name__ == "__main__":
    main()
