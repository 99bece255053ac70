"""Brief traces: a few calls on little memory that a read ends run uncompiled, with right values."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import fuse
from fuse.device import lazy
from fuse.errors import ConfigError
from tests.device.helpers import DEVICE, Counted, mode, recorder

CPU = torch.device("cpu")
PATIENCE = 4
"""Brief traces in a row after which the next one runs uncompiled."""
CALLS = 32


@pytest.fixture(autouse=True)
def brief() -> Iterator[None]:
    with recorder(brief_calls=CALLS):
        yield


def policy(device: torch.device) -> Callable[[float], float]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(device)

    def act(scale: float) -> float:
        with torch.no_grad():
            return net(torch.full((1, 8), scale).to(device)).max().item()

    return act


def settled(step: Callable[[], object]) -> Counted:
    """What one more run does after those that a brief trace is known by."""
    for _ in range(PATIENCE):
        step()
    with Counted() as counted:
        step()
    return counted


def test_brief_traces_run_uncompiled_once_they_are_known():
    act, expected = policy(DEVICE), policy(CPU)
    for number in range(PATIENCE):
        with Counted() as counted:
            assert act(number / 4) == pytest.approx(expected(number / 4), abs=1e-6)
        assert counted.chunks == 1 and counted.uncompiled == 0
    with Counted() as counted:
        for number in range(10):
            assert act(number / 4) == pytest.approx(expected(number / 4), abs=1e-6)
    assert counted.chunks == counted.recorded == 0 and counted.uncompiled >= 10 * 4


def many(x: torch.Tensor) -> float:
    for _ in range(CALLS + 1):
        x = x + 1
    return x.sum().item()


NOT_BRIEF: dict[str, Callable[[torch.Tensor], object]] = {
    "many calls": many,
    "a large result": lambda x: (x.repeat(6000) * 2).sum().item(),
    "a large operand": lambda x: torch.zeros(200_000, device=x.device).sum().item(),
    "random numbers": lambda x: (x + torch.rand(3, device=x.device)).sum().item(),
    "no read": lambda x: (x + 1, torch.tpu.synchronize()),
    "many values that live on": lambda x: [(x + k).add_(1) for k in range(9)][0].sum().item(),
}


@pytest.mark.parametrize("name", NOT_BRIEF)
def test_other_traces_are_compiled(name: str):
    x = torch.ones(3, device=DEVICE)
    kept = []
    counted = settled(lambda: kept.append(NOT_BRIEF[name](x)))
    assert counted.chunks >= 1 and counted.uncompiled == 0


@pytest.mark.parametrize("name", ["debug", "strict"])
def test_only_fused_eager_has_brief_traces(name: str):
    with mode(name):
        act = policy(DEVICE)
        assert settled(lambda: act(0.5)).uncompiled == 0


def test_another_backend_computes_brief_traces_itself():
    before = fuse.get_backend()
    fuse.set_backend("numpy")
    try:
        act = policy(DEVICE)
        assert settled(lambda: act(0.5)).uncompiled == 0
    finally:
        fuse.set_backend(before)


def test_what_goes_on_is_recorded_and_no_longer_expected_to_be_brief():
    """A trace that begins as brief ones did, and is long, has the right values too."""

    def run(device: torch.device) -> list[float]:
        x, found = torch.ones(3, device=device), []
        for _ in range(12):
            for _ in range(PATIENCE + 1):
                found.append((x + 1).sum().item())
            y = x + 1
            for k in range(60):
                y = y + k
            found.append(y.sum().item())
        return found

    assert run(DEVICE) == run(CPU)
    with Counted() as counted:
        assert run(DEVICE) == run(CPU)
    assert counted.recorded > 12 * 60
    compiled = fuse.stats()["compiles"]
    assert run(DEVICE) == run(CPU)
    assert fuse.stats()["compiles"] == compiled


def test_what_reads_the_results_of_brief_traces_is_recorded():
    def rollout(device: torch.device) -> tuple[list[float], torch.Tensor]:
        torch.manual_seed(0)
        net = nn.Linear(8, 4).to(device)
        x, values = torch.ones(1, 8, device=device), []
        with torch.no_grad():
            for _ in range(2 * PATIENCE):
                x = torch.cat([net(x).tanh(), net(x)], 1)
                values.append(x[0, 0].item())
        return values, (torch.stack([x, 2 * x]) @ torch.ones(8, 8, device=device)).cpu()

    rollout(DEVICE)
    with Counted() as counted:
        values, last = rollout(DEVICE)
    expected, expected_last = rollout(CPU)
    assert values == pytest.approx(expected, abs=1e-5)
    torch.testing.assert_close(last, expected_last)
    assert counted.uncompiled > 0 and counted.chunks >= 1


def test_writes_in_place_and_views():
    def run(device: torch.device) -> tuple[list[float], list[float]]:
        state, found = torch.zeros(6, device=device), []
        part = state[2:5]
        for step in range(3 * PATIENCE):
            part += step
            state[step % 6] = 7.0
            found.append(part.sum().item())
        return found, (state * 2).tolist()

    assert run(DEVICE) == run(CPU)
    with Counted() as counted:
        assert run(DEVICE) == run(CPU)
    assert counted.uncompiled > 0


def test_training_whose_loss_is_read_before_the_backward_pass():
    def train(device: torch.device) -> list[float]:
        torch.manual_seed(0)
        weight = torch.randn(4, 1, device="cpu").to(device).requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        x = torch.linspace(-1, 1, 32).reshape(8, 4).to(device)
        losses = []
        for _ in range(4 * PATIENCE):
            loss = (x @ weight - 1).square().mean()
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return losses

    with Counted() as counted:
        found = train(DEVICE)
    assert found == pytest.approx(train(CPU), rel=1e-5)
    assert counted.uncompiled > 0


def test_random_numbers_are_the_same_whether_or_not_the_calls_before_were_compiled():
    def draw() -> list[float]:
        torch.manual_seed(3)
        x, found = torch.ones(3, device=DEVICE), []
        for _ in range(2 * PATIENCE):
            found.append((x + 1).sum().item())
            found += torch.rand(2, device=DEVICE).tolist()
        return found

    first = draw()
    assert draw() == first
    lazy.core().set_brief_calls(0)
    assert draw() == first


def test_errors_are_those_of_recorded_calls():
    x = torch.ones(3, device=DEVICE)
    for _ in range(PATIENCE + 1):
        (x + 1).sum().item()
    x + 1  # noqa: B018  (the first call of a brief trace)
    with pytest.raises(RuntimeError, match="The size of tensor a"):
        torch.add(x, torch.ones(4, device=DEVICE))
    assert (x + 1).sum().item() == 6


def test_explain_shows_what_would_have_run_uncompiled():
    act = policy(DEVICE)
    assert settled(lambda: act(0.5)).chunks == 0
    assert fuse.explain(act, 0.5).to_dict()["traces"]


def test_the_setting(monkeypatch: pytest.MonkeyPatch):
    engine = lazy.engine()
    monkeypatch.delenv("FUSE_BRIEF_TRACE", raising=False)
    assert engine.brief_calls == (CALLS if engine.backend.wakes_host_threads() else 0)
    monkeypatch.setenv("FUSE_BRIEF_TRACE", "few")
    with pytest.raises(ConfigError, match="FUSE_BRIEF_TRACE='few' is not a whole number"):
        lazy.core().set_brief_calls(engine.brief_calls)
