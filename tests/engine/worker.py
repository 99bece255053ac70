"""The programs that the tests run in processes of their own; each prints JSON at its end."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import fuse
from fuse.backends.xla.backend import XlaBackend
from fuse.cache import CacheMissError
from fuse.cache.lease import Lease, LeaseState
from fuse.device import lazy
from fuse.engine import executables, planning
from fuse.engine.plan_store import SHORTEST
from fuse.plan import planner
from fuse.plan.plan import Plan
from fuse.trace.node import Trace

STEPS = 3
WIDTH = 24

calls = {"compile": 0, "trace": 0, "plan": 0}


def count_calls() -> None:
    """Count what a warm start must not do: compile a chunk, trace a rule, or plan a long trace."""

    def counted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            calls[name] += 1
            return method(*args)

        return call

    XlaBackend.compile = counted("compile", XlaBackend.compile)  # type: ignore[method-assign]
    XlaBackend._try = counted("trace", XlaBackend._try)  # type: ignore[method-assign]
    make_plan = counted("plan", planning.make_plan)

    def plan(trace: Trace, *rest: Any) -> Plan:
        chosen: Plan = (make_plan if len(trace.nodes) >= SHORTEST else planner.plan)(trace, *rest)
        return chosen

    planning.make_plan = plan


def wait_for(name: str) -> None:
    """Say that this process is ready, and wait for the file that starts all of them."""
    torch.tpu.init()
    print("ready", flush=True)
    while not Path(name).exists():
        time.sleep(0.001)


def train(width: int = WIDTH) -> list[float]:
    """A few steps of a small network, whose losses depend on every step before."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, 5)
    ).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data, target = torch.randn(8, width).to("tpu"), torch.arange(8).to("tpu") % 5
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def missing() -> dict[str, Any]:
    """Train where nothing may compile; what the user's code sees of it."""
    x = torch.ones(3, device="tpu")
    y = x * 2
    try:
        y.sum().item()
    except CacheMissError as error:
        explanation = error.explanation
        return {"text": str(error), "label": explanation.key.label, "at": "item"}
    return {"text": "", "label": "", "at": ""}


def nearly() -> list[float]:
    """Two programs that differ in one operation."""
    x = torch.ones(7, 3).to("tpu")
    first = (x * 2 + 1).tanh().sum().item()
    second = (x * 2 + 1).sigmoid().sum().item()
    return [first, second]


def factorise() -> list[float]:
    """Linear algebra, whose kernels live in libraries beside XLA."""
    matrix = (torch.arange(16.0).reshape(4, 4).sin() + 4 * torch.eye(4)).to("tpu")
    results = [
        torch.linalg.cholesky(matrix @ matrix.T),
        torch.linalg.svdvals(matrix),
        torch.fft.fft(matrix).abs(),
    ]
    return [result.sum().item() for result in results]


def explained() -> list[str]:
    """What ``fuse.explain`` says of a small program, and of one that differs in an operation."""
    x = torch.ones(4, 4).to("tpu")
    programs = [lambda: (x @ x).tanh().cpu(), lambda: (x @ x).sigmoid().cpu()]
    return [fuse.explain(program, full=True) for program in programs]


def hold() -> None:
    """Take the lease of the first executable of ``train``, and never finish compiling it."""

    def hang(*_: Any) -> Any:
        print("compiling", flush=True)
        time.sleep(3600)

    XlaBackend.compile = hang  # type: ignore[method-assign]
    train()


def queue() -> list[float]:
    """Train, and say when another process is found to hold a lease."""
    poll = Lease.poll

    def tell(lease: Lease) -> LeaseState:
        state = poll(lease)
        if state is LeaseState.BUSY:
            print("waiting", flush=True)
        return state

    Lease.poll = tell  # type: ignore[method-assign]
    return train()


ROLES: dict[str, Callable[[], Any]] = {
    "train": train,
    "missing": missing,
    "nearly": nearly,
    "factorise": factorise,
    "explain": explained,
    "hold": hold,
    "queue": queue,
}


def wait_at_the_end() -> None:
    """Store what is used at the end, too, however long it takes: other processes look for it."""
    chosen = executables.cache_settings
    executables.cache_settings = lambda: replace(chosen(), exit_seconds=60.0)


def main(role: str) -> None:
    count_calls()
    wait_at_the_end()
    start = os.environ.get("START_FILE")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if start:
            wait_for(start)
        result = ROLES[role]()
        assert lazy.engine().executables.cache.flush(120)
    texts = [str(w.message) for w in caught if "compilation cache" in str(w.message)]
    print(
        json.dumps({"result": result, "stats": fuse.stats(), "calls": calls, "warnings": texts}),
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1])
