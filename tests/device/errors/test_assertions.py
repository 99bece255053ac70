"""``torch._assert_async``: what fails is said where the program reads, and nothing waits before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import fuse
from fuse.device.composites.assertion import ASSERTIONS
from tests.lanes import only_in

DEVICE = torch.device("tpu")
HERE = Path(__file__).name


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    fuse.reset_stats()
    yield
    fuse.set_mode("fused")
    ASSERTIONS.check()
    torch._dynamo.reset()


def numbers() -> torch.Tensor:
    return torch.arange(6.0).to(DEVICE)


def bounded(x: torch.Tensor) -> torch.Tensor:
    torch._assert_async((x < 10).all(), "ten or more")
    torch._assert_async((x > -10).all(), "minus ten or less")
    torch._assert_async(x.sum())
    return x + 1


def test_what_holds_costs_no_read() -> None:
    x = numbers()
    for _ in range(12):
        assert bounded(x).sum().item() == 21
    assert fuse.stats()["host_fallbacks"] == {}
    assert "host_fallback" not in fuse.stats()["cuts"]


@only_in("compiled", "accelerator", reason="uncompiled it is said at the call")
@pytest.mark.parametrize("compiled", [False, True])
def test_what_fails_is_said_once_where_the_program_reads(compiled: bool) -> None:
    function = torch.compile(bounded, backend="tpu") if compiled else bounded
    function(numbers())
    cases = [(5, "ten or more"), (-15, "minus ten or less"), (-2.5, "single nonzero")]
    for added, said in cases[:2] if compiled else cases:  # AOTAutograd drops what has no text
        found = function(numbers() + added)
        line = rf"{said}.*\n  operator: aten::_assert_async\(\)\n  at: .*{HERE}:\d+\n  hint: it is"
        with pytest.raises(RuntimeError, match=line):
            found.sum().item()
        torch.testing.assert_close(found.cpu(), torch.arange(6.0) + added + 1)


def test_it_is_said_at_the_latest_where_the_program_waits() -> None:
    with pytest.raises(RuntimeError, match="ten or more"):
        bounded(numbers() * 2)
        torch.tpu.synchronize()


@only_in("compiled", "accelerator", reason="uncompiled it is said at the call")
def test_of_several_the_first_is_said() -> None:
    bounded(numbers())
    found = bounded(torch.tensor([-20.0, 20.0]).to(DEVICE))
    with pytest.raises(RuntimeError, match="ten or more"):
        found.tolist()


@pytest.mark.parametrize("compiled", [False, True])
def test_training(compiled: bool) -> None:
    weight = torch.ones(3, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x < 10).all(), "ten or more")
        return (weight * x).square().sum()

    function: Callable[[torch.Tensor], torch.Tensor] = (
        torch.compile(loss_of, backend="tpu") if compiled else loss_of
    )

    def step(x: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = function(x.to(DEVICE))
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [step(torch.full((3,), 0.5)) for _ in range(8)]
    torch.testing.assert_close(losses, [0.75 * 0.5625**n for n in range(8)])
    assert fuse.stats()["host_fallbacks"] == {}
    with pytest.raises(RuntimeError, match="ten or more"):
        step(torch.full((3,), 11.0))


@pytest.mark.parametrize(("shape", "said"), [((0,), "no values"), ((2,), "more than one value")])
def test_what_is_no_condition_is_an_error_at_the_call(shape: tuple[int, ...], said: str) -> None:
    with pytest.raises(RuntimeError, match=f"Boolean value of Tensor with {said} is ambiguous"):
        torch._assert_async(torch.ones(shape, device=DEVICE))


def test_debug_eager_says_it_at_the_call() -> None:
    fuse.set_mode("debug")
    with pytest.raises(RuntimeError, match="^ten or more$"):
        bounded(numbers() * 2)


@pytest.mark.skipif(
    not hasattr(torch.accelerator, "Graph"), reason="PyTorch has graphs from 2.13 on"
)
@only_in("compiled", "accelerator", reason="graphs hold what is recorded")
def test_a_captured_graph_refuses_it() -> None:
    x = numbers()
    graph = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match="an assertion, which is checked on the host"), graph:
        torch._assert_async((x < 10).all())
