"""Random loops in which nothing is read: cut into pieces, run in both tiers, right in the end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from fuse.device import lazy
from tests.device.helpers import DEVICE, recorder
from tests.lanes import not_on_accelerators

pytestmark = not_on_accelerators("no call runs uncompiled there")

CPU = torch.device("cpu")
State = dict[str, torch.Tensor]


def moved(state: State) -> None:
    state["x"] = (state["x"] * 0.5 + state["y"]).tanh()


def multiplied(state: State) -> None:
    state["x"] = functional.linear(state["x"], state["w"], state["y"][0]).sigmoid()


def widened(state: State) -> None:
    wide = functional.linear(torch.cat([state["x"], state["y"]]), state["w"])
    state["y"] = wide[1:4].softmax(1)


def written(state: State) -> None:
    state["y"].mul_(0.75).add_(state["x"], alpha=0.1)
    state["y"][:, 1].clamp_(min=0.1)


def counted(state: State) -> None:
    state["n"] = (state["n"] * 3 + 1) % 1_000_003


def listed(state: State) -> None:
    state["x"], state["y"] = torch._foreach_mul([state["x"], state["y"]], 0.9)


def gradients(state: State) -> None:
    x = state["x"].detach().requires_grad_()
    functional.linear(x, state["w"]).square().sum().backward()
    assert x.grad is not None
    state["y"] = (state["y"] - 0.01 * x.grad).tanh()


CALLS = (moved, multiplied, widened, written, counted, listed, gradients)


def begun(device: torch.device) -> State:
    def spread(*sizes: int) -> torch.Tensor:
        count = torch.Size(sizes).numel()
        return torch.linspace(-1, 1, count, device=CPU).reshape(sizes).to(device)

    return {
        "x": spread(3, 4),
        "y": spread(3, 4).flip(0),
        "w": spread(4, 4),
        "n": torch.arange(3, device=device),
    }


def rounds(body: list[Callable[[State], None]], times: int, states: list[State]) -> None:
    for state in states:
        for _ in range(times):
            for call in body:
                call(state)


@pytest.mark.parametrize("seed", range(5))
def test_the_end_of_a_long_loop_is_the_cpus(seed: int) -> None:
    choice = random.Random(seed)
    body = [choice.choice(CALLS) for _ in range(choice.randint(1, 12))]
    with recorder(limit=choice.choice([60, 150, 400, 16_384]), tier="auto"):
        states = [begun(CPU), begun(DEVICE)]
        end = time.monotonic() + 3
        while time.monotonic() < end and not any(t["trials"] for t in lazy.core().tiers()):
            rounds(body, choice.randint(20, 60), states)
            if choice.random() < 0.02:  # the loop comes to an end, and goes on anew
                assert states[0]["n"].tolist() == states[1]["n"].tolist()
        rounds(body, 50, states)
        for name, expected in states[0].items():
            torch.testing.assert_close(states[1][name].cpu(), expected, rtol=1e-3, atol=1e-4)
