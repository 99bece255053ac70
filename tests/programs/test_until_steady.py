"""Programs that are compared at every step until they are steady: some of what the device does
begins at the fifth step, some once a segment has been compiled, and some after a trial of tiers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.marks import slow_but
from tests.programs.harness import CPU, DEVICE, assert_same, on_host, steady_runs

SECONDS = 20.0
Steps = Iterator[object]


def training(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor], device: torch.device,
             optimizer: Callable[..., torch.optim.Optimizer]) -> Steps:  # fmt: skip
    """A loss and a weight at every step, from which the CPU and the device start anew at times:
    what rounding does to a run of thousands of steps is no difference of the device."""
    model, (x, y) = model.to(device), (one.to(device) for one in batch)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    while True:
        model.load_state_dict(start)
        chosen = optimizer(model.parameters())
        for _ in range(20):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            chosen.step()
            chosen.zero_grad()
            yield loss, next(model.parameters())


def perceptron(device: torch.device) -> Steps:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    batch = (torch.randn(12, 8), torch.arange(12) % 3)
    return training(model, batch, device, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))


def convolutions(device: torch.device) -> Steps:
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(27, 3),
    )  # fmt: skip
    batch = (torch.randn(6, 1, 8, 8), torch.arange(6) % 3)
    return training(model, batch, device, lambda p: torch.optim.AdamW(p, lr=1e-3))


class Last(nn.Module):
    """A recurrent net's last output."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(x)[0][:, -1])


def recurrent(device: torch.device) -> Steps:
    batch = (torch.randn(5, 4, 4), torch.arange(5) % 3)
    return training(Last(), batch, device, lambda p: torch.optim.SGD(p, lr=0.1))


def encoder(device: torch.device) -> Steps:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(40, 3))
    batch = (torch.randn(4, 5, 8), torch.arange(4) % 3)
    return training(model, batch, device, lambda p: torch.optim.SGD(p, lr=0.05))


def policy(device: torch.device) -> Steps:
    """Actions that are read one by one, and a backward pass over all of them."""
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)).to(device)
    start = {name: value.clone() for name, value in net.state_dict().items()}
    while True:
        net.load_state_dict(start)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        for _ in range(5):
            state, kept, actions = torch.ones(4), [], []
            for number in range(8):
                scores = net(state.to(device)).log_softmax(-1)
                actions.append(int((scores[1] > scores[0]).item()))
                kept.append(scores[actions[-1]])
                state = torch.tensor([0.1 * number, 1.0, float(actions[-1]), 0.5])
            loss = -torch.stack(kept).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield actions, loss


def decoding(device: torch.device) -> Steps:
    """A cache that is written in place, a mask that moves, and a number that grows."""
    weight = (torch.eye(8) * 0.5 + 0.1).to(device)
    while True:
        cache, x = torch.zeros(6, 8, device=device), torch.ones(8, device=device)
        for at in range(6):
            cache[at] = x @ weight
            seen = (torch.arange(6, device=device) <= at).float()[:, None]
            x = ((cache * seen).sum(0) / (at + 1)).tanh()
            yield at, x.sum().item()


PROGRAMS = {one.__name__: one for one in (
    perceptron, convolutions, recurrent, encoder, policy, decoding
)}  # fmt: skip


@pytest.mark.parametrize("name", slow_but(["perceptron", "policy", "decoding"], PROGRAMS))
def test_at_every_step(name: str) -> None:
    steps = []
    for device in (CPU, DEVICE):
        torch.manual_seed(0)
        steps.append(PROGRAMS[name](device))
    for number in steady_runs(SECONDS, least=80):
        torch.manual_seed(number)
        expected = on_host(next(steps[0]))
        torch.manual_seed(number)
        found = on_host(next(steps[1]))
        assert_same(found, expected, 1e-3, 1e-4, f"step {number + 1}")
