"""Random programs of views, writes, host reads and gradients: every mode agrees with the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuse
from tests.conftest import MODES
from tests.programs.harness import assert_same, on_host, run

ROWS, COLUMNS = 3, 4
RUNS = 3


@dataclass(frozen=True)
class Step:
    """One step of a program: what is done, to which earlier tensors, with which numbers."""

    kind: str
    first: int
    second: int
    number: int


def _rows(x: torch.Tensor, n: int) -> torch.Tensor:
    start = n % x.size(0)
    return x[start : start + 1 + n % 2]


def _columns(x: torch.Tensor, n: int) -> torch.Tensor:
    return x[:, n % x.size(1) :: 1 + n % 2]


VIEWS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "transpose": lambda x, n: x.t(),
    "rows": _rows,
    "columns": _columns,
    "narrow": lambda x, n: x.narrow(1, 0, 1 + n % x.size(1)),
    "select and back": lambda x, n: x[n % x.size(0)].unsqueeze(0),
    "permute": lambda x, n: x.unsqueeze(1).permute(2, 1, 0).squeeze(1),
    "diagonal": lambda x, n: x.diagonal().unsqueeze(n % 2),
    "detach": lambda x, n: x.detach(),
    "expand": lambda x, n: x[:1].expand(2, x.size(1)) * 1,
    "chunk": lambda x, n: x.chunk(2, dim=0)[0],
    "strided": lambda x, n: x.as_strided((1, min(x.size(1), 2)), x.stride()),
}
MATHS: dict[str, Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]] = {
    "tanh": lambda x, y, n: x.tanh(),
    "scale": lambda x, y, n: x * (1 + n / 8) - 0.5,
    "sum": lambda x, y, n: x + y.sum(),
    "mean": lambda x, y, n: x * y.mean(0, keepdim=True).mean(1, keepdim=True),
    "product": lambda x, y, n: (x @ x.t()).tanh(),
    "softmax": lambda x, y, n: x.softmax(n % 2),
    "cat": lambda x, y, n: torch.cat([x, x.flip(0)], n % 2)[:4, :5],
    "where": lambda x, y, n: torch.where(x > 0.1, x, x * 0.5),
    "clone": lambda x, y, n: x.clone(),
    "clamp": lambda x, y, n: x.clamp(-1 - n / 4, 1),
}
WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor, int], Any]] = {
    "add_": lambda x, y, n: x.add_(n / 4),
    "mul_": lambda x, y, n: x.mul_(0.5 + n / 8),
    "fill_": lambda x, y, n: x.fill_(n - 2.0),
    "add mean": lambda x, y, n: x.add_(y.detach().mean()),
    "set item": lambda x, y, n: x.__setitem__(n % x.size(0), n / 2),
    "set column": lambda x, y, n: x.__setitem__((slice(None), n % x.size(1)), 0.25),
    "copy_": lambda x, y, n: x.copy_(y.detach().sum().tanh()),
    "swap": lambda x, y, n: x.copy_(x.flip(0)),
    "masked": lambda x, y, n: x.masked_fill_(x > 1, -0.5),
}
READS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "item": lambda x, n: x.reshape(-1)[n % x.numel()].item(),
    "sum": lambda x, n: float(x.sum()),
    "cpu": lambda x, n: x.cpu(),
    "truth": lambda x, n: bool(x.detach().abs().sum() > 1e3),
    "sync": lambda x, n: None if x.is_cpu else torch.tpu.synchronize(),
}
KINDS = [*VIEWS, *MATHS, *WRITES, *READS, "backward", "backward"]

STEPS = st.lists(
    st.builds(
        Step, st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 9), st.integers(0, 5)
    ),
    min_size=3,
    max_size=14,
)


def _backward(x: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor | None:
    if not x.requires_grad:
        return None
    (found,) = torch.autograd.grad(x.square().sum(), leaf, retain_graph=True, allow_unused=True)
    return found


def execute(steps: list[Step], device: torch.device) -> list[Any]:
    """Run a program; what a step returns, or the kind of error it raises, is its result."""
    leaf = torch.linspace(-1, 1, ROWS * COLUMNS).view(ROWS, COLUMNS).to(device).requires_grad_()
    pool = [leaf * 1.0, torch.arange(6.0).view(2, 3).to(device) / 4]
    seen: list[Any] = []
    for step in steps:
        x, y = pool[step.first % len(pool)], pool[step.second % len(pool)]
        try:
            if step.kind in VIEWS:
                pool.append(VIEWS[step.kind](x, step.number))
            elif step.kind in MATHS:
                pool.append(MATHS[step.kind](x, y, step.number))
            elif step.kind in WRITES:
                WRITES[step.kind](x, y, step.number)
            elif step.kind in READS:
                seen.append(on_host(READS[step.kind](x, step.number)))
            else:
                seen.append(on_host(_backward(x, leaf)))
        except (RuntimeError, IndexError) as error:
            seen.append(str(error).splitlines()[0].replace("tpu", "cpu"))
    return [seen, pool, [tensor.stride() for tensor in pool]]


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(STEPS)
def test_a_random_program_gives_the_cpus_results_in_every_mode(steps: list[Step]):
    expected = run(lambda device: execute(steps, device), torch.device("cpu"))
    try:
        for mode in MODES:
            fuse.set_mode(mode)
            for number in range(RUNS):
                found = run(lambda device: execute(steps, device), torch.device("tpu"))
                assert_same(found, expected, 1e-4, 1e-5, f"{mode}, run {number + 1}")
    finally:
        fuse.set_mode("fused")
