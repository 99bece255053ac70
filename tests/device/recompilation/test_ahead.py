"""The first chunks of a known stream run while the rest of it is recorded."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fuse
from fuse.device import lazy
from fuse.engine.stage_runner import StageRunner
from tests.device.helpers import DEVICE, recorder
from tests.lanes import only_in

pytestmark = only_in(
    "compiled",
    "accelerator",
    reason="plans that are started ahead",
)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with recorder():
        fuse.reset_stats()
        yield


def started() -> tuple[int, int]:
    """How often a plan was started early, and how often another one came."""
    stats = fuse.stats()
    return stats["started_early"], stats["started_in_vain"]


class Net(nn.Module):
    """Its loss is far enough from its end for a chunk of its own."""

    def __init__(self) -> None:
        super().__init__()
        layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh())]
        self.layers = nn.Sequential(*layers, nn.BatchNorm1d(64), nn.Dropout(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def losses(device: torch.device, steps: int, between: dict[int, str] | None = None) -> list[float]:
    """A training run; before some steps something happens that the stream then shows."""
    torch.manual_seed(0)
    net = Net().to(device)
    net.layers[-1].p = 0.0
    x, y = torch.randn(1024, 64).to(device), torch.randn(1024, 64).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    found = []
    for step in range(steps):
        what = (between or {}).get(step)
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        loss = F.mse_loss(net(x), y)
        if what == "no backward":
            found.append(loss.item())
            continue
        loss.backward()
        if what == "clip":
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        if what == "read":
            found.append(float(net.layers[0].weight.grad.sum().item()))
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def test_training_is_started_early_and_right():
    found, wanted = losses(DEVICE, 8), losses(torch.device("cpu"), 8)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    early, in_vain = started()
    assert early >= 4 and in_vain <= 1


def test_a_stream_that_ends_otherwise_is_run_from_its_beginning():
    between = {4: "no backward", 5: "clip", 7: "read", 9: "clip", 10: "no backward"}
    found, wanted = losses(DEVICE, 12, between), losses(torch.device("cpu"), 12, between)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    assert started()[1] >= 2


def answered(x: torch.Tensor, last: str = "sin") -> float:
    """A number made early and read at the end; ``last`` is how the stream ends."""
    y = x
    for _ in range(4):
        y = torch.relu(y @ x * 0.01)
    kept = y.sum()
    for _ in range(8):
        y = torch.tanh(y @ x * 0.01)
    (getattr(y, last)() * 2).sum().item()
    return kept.item()


def test_a_stream_that_keeps_ending_otherwise_is_started_no_more():
    x = torch.randn(512, 512, device=DEVICE)
    endings = ["sin", "cos"]
    first = {last: answered(x, last) for last in endings}
    for _ in range(20):
        for last in endings:
            assert answered(x, last) == first[last]
    early, in_vain = started()
    assert early == 0 and 3 <= in_vain <= 6


def test_random_numbers_are_those_of_a_stream_that_is_not_started_early(
    monkeypatch: pytest.MonkeyPatch,
):
    def drawn() -> list[float]:
        torch.manual_seed(3)
        net = Net().to(DEVICE)
        x = torch.randn(1024, 64, device=DEVICE)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        found = []
        for _ in range(5):
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        return found

    found = drawn()
    assert started()[0] >= 2
    monkeypatch.setattr(lazy.engine(), "start", lambda *_: None)
    early = started()[0]
    assert drawn() == found and started()[0] == early


def test_a_failure_while_starting_is_no_failure_of_the_program(monkeypatch: pytest.MonkeyPatch):
    failures = []
    stages = StageRunner.stages

    def failing(runner, runnable, leaves, scalars, begun, stop):
        if stop < len(runnable.stages):
            failures.append(stop)
            raise RuntimeError("no memory just now")
        return stages(runner, runnable, leaves, scalars, begun, stop)

    monkeypatch.setattr(StageRunner, "stages", failing)
    found, wanted = losses(DEVICE, 6), losses(torch.device("cpu"), 6)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    assert failures and started() == (0, len(failures))  # counted: not silent


def test_an_interrupt_while_starting_loses_nothing(monkeypatch: pytest.MonkeyPatch):
    engine = lazy.engine()
    start, interrupts = engine.start, []

    def interrupted(*arguments):
        result = start(*arguments)
        if not interrupts:
            interrupts.append(True)
            raise KeyboardInterrupt
        return result

    x = torch.randn(512, 512, device=DEVICE)
    wanted = answered(x)
    monkeypatch.setattr(engine, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        for _ in range(3):
            answered(x)
    assert [answered(x) for _ in range(3)] == [wanted] * 3
    assert started()[0] >= 1


def test_what_is_watched_is_not_started_early():
    losses(DEVICE, 3)
    before = started()[0]
    fuse.explain(lambda: losses(DEVICE, 2))
    assert started()[0] == before


def test_after_a_backend_was_used_in_between():
    for name in ("numpy", "xla"):
        fuse.set_backend(name)
        fuse.reset_stats()
        found, wanted = losses(DEVICE, 5), losses(torch.device("cpu"), 5)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        assert started()[0] >= 2


def test_many_programs_in_turn():
    """Streams with a common beginning, in an order that never repeats."""
    generator = random.Random(0)
    orders = [{3: generator.choice(["clip", "read", "no backward"])} for _ in range(4)]
    for between in orders:
        found, wanted = losses(DEVICE, 5, between), losses(torch.device("cpu"), 5, between)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_plans_that_are_not_started_ahead(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lazy.engine().planning, "ahead", False)
    torch.testing.assert_close(losses(DEVICE, 5), losses(torch.device("cpu"), 5))
    assert started() == (0, 0)
