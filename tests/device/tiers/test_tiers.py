"""Which tier a segment runs in: the settings, and results where that changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest
import torch

import fuse
from fuse.device import lazy
from tests.device.helpers import DEVICE, Block, Counted, recorder, run
from tests.lanes import not_on_accelerators

pytestmark = not_on_accelerators("no call runs uncompiled there")

CPU = torch.device("cpu")
SECONDS = 100.0
"""Within which what is worth it has been recorded, and tried, with a wide margin."""


@pytest.fixture(autouse=True)
def chosen() -> Iterator[None]:
    with recorder(tier="auto"):
        yield


def chain(x: torch.Tensor) -> float:
    for _ in range(5):
        x = (x @ x).tanh()
    return x.sum().item()


def recorded(step: Callable[[], object]) -> int:
    with Counted() as found:
        step()
    return found.recorded


def trials() -> int:
    return sum(kind["trials"] for kind in lazy.core().tiers())


def until(condition: Callable[[], bool], step: Callable[[], object]) -> None:
    """Repeat ``step`` until the condition holds, which takes a second or two."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, lazy.core().tiers()
        step()


def test_a_stream_is_recorded_and_tried_once_that_is_worth_it() -> None:
    x = torch.full((4, 4), 0.1, device="cpu")
    on_device, expected = x.to(DEVICE), pytest.approx(chain(x))

    def step() -> None:
        assert chain(on_device) == expected

    assert recorded(step) == 0
    until(lambda: trials() > 0, step)
    found = next(kind for kind in lazy.core().tiers() if kind["trials"])
    assert all(found["segments"]) and all(found["measured_ns"])


def test_streams_that_take_turns_are_recorded() -> None:
    inputs = [torch.ones(n, n, device="cpu").div(n) for n in (2, 3, 4)]
    pairs = [(x.to(DEVICE), pytest.approx(chain(x), rel=1e-5)) for x in inputs]
    enough = fuse.stats()["operations"] + 3 * 11

    def step() -> None:
        for x, expected in pairs:
            assert chain(x) == expected

    until(lambda: fuse.stats()["operations"] >= enough, step)


def test_a_sequence_that_grows_is_never_recorded() -> None:
    x = torch.ones(1, 4, device=DEVICE)

    def write() -> None:
        y = x
        for _ in range(30):
            y = torch.cat([y, x * 2])
            assert y.sum().item() == 8 * len(y) - 4

    assert recorded(lambda: [write() for _ in range(3)]) == 0


@pytest.mark.parametrize("calls", [2, 6, 60])
def test_a_loop_without_an_end_of_its_own_is_tried_in_equal_pieces(calls: int) -> None:
    """One that is longer than a trace may be, and in which nothing is read."""
    values = {device: torch.arange(3, device=device) for device in (CPU, DEVICE)}
    numbers = [7 * k + 3 for k in range(calls // 2)]

    def step() -> None:
        for device, x in values.items():
            for number in numbers:
                x = (x + number) % 1_000_003
            values[device] = x

    def pieces() -> int:
        return fuse.stats()["cuts"].get("repeat_mark", 0)

    with recorder(limit=200, tier="auto"):
        before = pieces()
        assert recorded(lambda: [step() for _ in range(900 // calls)]) == 0
        until(lambda: trials() > 0, step)
        assert pieces() - before > 4
        compiled = fuse.stats()["compiles"]
        for _ in range(900 // calls):
            step()
        assert fuse.stats()["compiles"] == compiled
        assert values[DEVICE].tolist() == values[CPU].tolist()


def test_a_loop_that_comes_to_an_end_has_been_forgotten() -> None:
    with recorder(limit=200, tier="auto"):
        x = torch.zeros(3, device=DEVICE)

        def times(count: int) -> None:
            nonlocal x
            for _ in range(count):
                x = x + 1

        times(1_000)
        with Counted() as found:
            assert x.sum().item() == 3_000
            times(150)  # one segment, longer than a piece
            assert x.sum().item() == 3_450
        assert found.uncompiled == 152 and found.recorded == 0


def test_what_begins_alike_and_goes_on_longer() -> None:
    """A segment that begins as short ones did, and is long, has the right values too."""

    def rounds(device: torch.device) -> list[float]:
        x, found = torch.ones(3, device=device), []
        for _ in range(12):
            for _ in range(5):
                found.append((x + 1).sum().item())
            y = x + 1
            for k in range(60):
                y = y + k
            found.append(y.sum().item())
        return found

    for _ in range(6):
        assert rounds(DEVICE) == rounds(CPU)


def losses(device: torch.device, read: str) -> Iterator[float]:
    torch.manual_seed(0)
    model, x = Block().to(device), torch.randn(2, 5, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while True:
        loss = model(x).square().mean()
        if read == "before the backward pass":
            yield loss.item()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if read == "after the step":
            yield loss.item()


@pytest.mark.parametrize("read", ["before the backward pass", "after the step"])
def test_training_that_is_recorded_at_last_goes_on_as_on_the_cpu(read: str) -> None:
    both = zip(losses(DEVICE, read), losses(CPU, read), strict=True)

    def step() -> None:
        found, expected = next(both)
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)

    until(lambda: trials() > 0, step)


def test_a_policy_that_reads_each_action() -> None:
    def actions(device: torch.device) -> list[float]:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)]
        net = torch.nn.Sequential(*layers).to(device)
        x, found = torch.ones(1, 8, device=device), []
        with torch.no_grad():
            for number in range(300):
                out = net(x)
                found.append(out.max().item())
                x = torch.cat([out.tanh(), net(x * 0.5)], 1) + number / 300
            last = torch.stack([x, 2 * x]) @ torch.ones(8, 8, device=device)
        return [*found, *last.flatten().tolist()]

    for _ in range(2):
        assert actions(DEVICE) == pytest.approx(actions(CPU), rel=1e-5, abs=1e-5)


SETTING = """
import torch, fuse
from fuse.device import lazy
x = torch.ones(3, device="tpu")
(x + 1).sum().item()
print(lazy.engine().tier, fuse.stats()["operations"])
"""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"FUSE_TIER": "auto"}, "auto 0"),
        ({"FUSE_TIER": "uncompiled"}, "uncompiled 0"),
        ({"FUSE_TIER": "compiled"}, "compiled 3"),
        ({"FUSE_TIER": "auto", "FUSE_CACHE_RECORD": os.devnull}, "compiled 3"),
        ({"FUSE_TIER": "auto", "FUSE_HOST_FALLBACK": "error"}, "compiled 3"),
        ({"FUSE_TIER": "auto", "FUSE_BACKEND": "numpy"}, "compiled 3"),
    ],
)
def test_the_setting(settings: dict[str, str], expected: str) -> None:
    assert run(SETTING, **settings).strip() == expected
