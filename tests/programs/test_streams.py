"""Random programs whose steps take turns on streams or in threads agree with the CPU's.

The steps share tensors: what one has recorded another reads, overwrites through views, gives other
memory, or reads on the host. One step runs at a time, so that the result is known.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

import fuse
from fuse.device import lazy

PLACES = 4
RUNS = 6
"""Some paths begin at the fifth."""

Pool = list[torch.Tensor]


@dataclass(frozen=True)
class Step:
    """One step: where it runs, what it does, to which tensors of the pool."""

    where: int
    kind: str
    to: int
    first: int
    second: int


def _resize(pool: Pool, step: Step, number: float) -> None:
    tensor = pool[step.to]
    if tensor._base is None and tensor.dim() == 1:
        tensor.resize_(3)
        tensor.resize_(6)


def _set_data(pool: Pool, step: Step, number: float) -> None:
    pool[step.to].data = pool[step.first].detach() * 1


def _gradient(pool: Pool, step: Step, number: float) -> None:
    leaf = pool[step.first].detach().clone().requires_grad_()
    (pool[step.to],) = torch.autograd.grad((leaf.tanh() * number).square().sum(), leaf)


KINDS: dict[str, Callable[[Pool, Step, float], Any]] = {
    "add": lambda p, s, n: p.__setitem__(s.to, p[s.first] * 0.5 + p[s.second] * 0.25),
    "product": lambda p, s, n: p.__setitem__(s.to, p[s.first].sin() * p[s.second]),
    "number": lambda p, s, n: p.__setitem__(s.to, (p[s.first] * n).clamp(-3, 3)),
    "sum": lambda p, s, n: p.__setitem__(s.to, p[s.first].cumsum(0) * 0.1 + p[s.second].sum() * n),
    "matrix": lambda p, s, n: p.__setitem__(
        s.to, (p[s.first].view(2, 3) @ p[s.second].view(3, 2)).view(-1).repeat(2)[:6].tanh()
    ),
    "fresh": lambda p, s, n: p.__setitem__(s.to, torch.full_like(p[s.first], n)),
    "gradient": _gradient,
    "mul_": lambda p, s, n: p[s.to].mul_(0.5),
    "add_": lambda p, s, n: p[s.to].add_(p[s.first] * 1, alpha=0.25),
    "view": lambda p, s, n: p[s.to][1:4].mul_(n),
    "strided": lambda p, s, n: p[s.to].as_strided((2, 2), (3, 1), 1).add_(n),
    "alias": lambda p, s, n: p.__setitem__(s.to, p[s.first].view(6)),
    "item": lambda p, s, n: p[s.to].__setitem__(s.first, n),
    "copy_": lambda p, s, n: p[s.to].copy_(p[s.first] * 1),
    "from host": lambda p, s, n: p[s.to].copy_(torch.arange(6.0) * n),
    "resize": _resize,
    "data": _set_data,
}
READS = ("read", "query", "synchronise", "device")
STEPS = st.lists(
    st.builds(
        Step,
        st.integers(0, 3),
        st.sampled_from([*KINDS, *READS, "read"]),
        *[st.integers(0, PLACES - 1)] * 3,
    ),
    min_size=3,
    max_size=30,
)


class Streams:
    """Runs a step on one of four streams of this thread."""

    def __init__(self) -> None:
        self._streams = [torch.tpu.Stream() for _ in range(4)]

    def __call__(self, step: Step, body: Callable[[], Any]) -> Any:
        with torch.tpu.stream(self._streams[step.where]):
            return body()


class Threads:
    """Runs a step in one of four threads, which live as long as this does."""

    def __init__(self) -> None:
        self._threads = [ThreadPoolExecutor(1) for _ in range(4)]

    def __call__(self, step: Step, body: Callable[[], Any]) -> Any:
        return self._threads[step.where].submit(body).result(120)

    def close(self) -> None:
        for thread in self._threads:
            thread.shutdown()


@contextmanager
def runner(name: str) -> Iterator[Callable[[Step, Callable[[], Any]], Any]]:
    """What runs steps."""
    if name == "streams":
        yield Streams()
        return
    threads = Threads()
    try:
        yield threads
    finally:
        threads.close()


def step_on(step: Step, pool: Pool, number: float) -> Any:
    """What a step shows: a tensor it reads."""
    if step.kind in KINDS:
        KINDS[step.kind](pool, step, number)
        return None
    if step.kind == "read":
        return pool[step.to].detach().cpu().clone()
    if pool[0].is_cpu:
        return None
    if step.kind == "query":
        torch.tpu.Event().record().query()
    elif step.kind == "synchronise":
        torch.tpu.current_stream().synchronize()
    else:
        torch.tpu.synchronize()
    return None


def program(
    steps: list[Step], device: str, number: float, run: Callable[[Step, Callable[[], Any]], Any]
) -> list[torch.Tensor]:
    """Run it; all that it reads, and the tensors in the end."""
    pool = [(torch.arange(6.0) * 0.1 + place).to(device) for place in range(PLACES)]
    seen = [run(step, lambda step=step: step_on(step, pool, number)) for step in steps]
    return [found for found in seen if found is not None] + [tensor.cpu() for tensor in pool]


def plainly(step: Step, body: Callable[[], Any]) -> Any:
    return body()


@pytest.mark.parametrize("where", ["streams", "threads"])
@pytest.mark.parametrize("most", [500_000, 40], ids=["remembered", "forgotten"])
@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS, limit=st.sampled_from([5, 16384]))
def test_steps_that_take_turns_give_the_cpus_results(
    where: str, most: int, steps: list[Step], limit: int
):
    torch.tpu.synchronize()
    core, engine = lazy.core(), lazy.engine()
    core.set_most_nodes(most)
    core.set_limit(limit)
    try:
        with runner(where) as run:
            for number in itertools.islice(itertools.cycle([0.5, 0.5, -1.25, 0.75]), RUNS):
                expected = program(steps, "cpu", number, plainly)
                found = program(steps, "tpu", number, run)
                for one, other in zip(found, expected, strict=True):
                    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    finally:
        torch.tpu.synchronize()
        core.set_most_nodes(500_000)
        core.set_limit(engine.max_operations)
    assert fuse.stats()["streams"] < 100
