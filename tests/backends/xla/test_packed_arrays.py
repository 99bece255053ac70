"""Small parameters of one shape are kept in one array, and nothing in a program shows it."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fuse
from fuse.backends.base import Chunk
from fuse.backends.xla import lowering
from fuse.backends.xla.backend import XlaBackend
from fuse.backends.xla.horizontal_packing import HorizontalPacking, stacking
from fuse.backends.xla.packed_arrays import Row
from tests.device.helpers import DEVICE, compile_anew, made, recorder, run

CPU = torch.device("cpu")
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "Nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "one by one": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.05),
}


class Training:
    """A deep narrow net on a device, five of whose layers are alike."""

    def __init__(self, device: torch.device, optimizer: str = "momentum") -> None:
        torch.manual_seed(0)
        layers = [layer for _ in range(5) for layer in (nn.Linear(8, 8), nn.Tanh())]
        self.net = nn.Sequential(*layers, nn.Linear(8, 3)).to(device)
        self.x, self.y = torch.randn(16, 8).to(device), torch.randint(0, 3, (16,)).to(device)
        self.optimizer = OPTIMIZERS[optimizer](self.net.parameters())

    def loss(self) -> torch.Tensor:
        return F.cross_entropy(self.net(self.x), self.y)

    def step(self) -> float:
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def parameters(self) -> list[torch.Tensor]:
        return [parameter.detach().cpu().clone() for parameter in self.net.parameters()]


@pytest.fixture
def stacked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[HorizontalPacking]]:
    """What each executable that is compiled does on stacks."""
    noted: list[HorizontalPacking] = []

    def note(chunk: Chunk, *arguments: Any) -> HorizontalPacking:
        noted.append(stacking(chunk, *arguments))
        return noted[-1]

    monkeypatch.setattr(lowering, "stacking", note)
    compile_anew(monkeypatch)
    with recorder():
        yield noted


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many rows each call of an executable was given."""
    counts: list[int] = []
    execute = XlaBackend.execute

    def count(self: XlaBackend, executable: Any, scalars: bytes, arrays: Any) -> list[Any]:
        counts.append(sum(type(array) is Row for array in arrays))
        return execute(self, executable, scalars, arrays)

    monkeypatch.setattr(XlaBackend, "execute", count)
    with recorder():
        yield counts


def same(program: Callable[[Training], Any], optimizer: str = "momentum") -> None:
    """The program's results and the parameters after it are the CPU's."""
    expected, found = (Training(device, optimizer) for device in (CPU, DEVICE))
    torch.testing.assert_close(program(found), program(expected), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.parameters(), expected.parameters(), rtol=1e-3, atol=1e-4)


def steps(count: int) -> Callable[[Training], list[float]]:
    return lambda training: [training.step() for _ in range(count)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer(optimizer: str, stacked: list[HorizontalPacking]):
    same(steps(6), optimizer)
    assert any(one.inputs for one in stacked), "nothing was stacked, so this shows nothing"


def test_in_a_loop_stacks_go_in_as_they_came_out(taken: list[int]):
    training = Training(DEVICE)
    for _ in range(4):
        training.step()
    (chunk,) = set(taken[-2:])  # parameters and momenta of five layers, weights and biases
    assert chunk == 20
    before = made()
    for _ in range(4):
        training.step()
    assert made() == before


def test_parameters_that_another_trace_reads_stay_arrays(taken: list[int]):
    """The loss is read before the update: a trace of its own needs every parameter alone."""
    training = Training(DEVICE)
    for _ in range(5):
        training.optimizer.zero_grad()
        loss = training.loss()
        loss.backward()
        loss.item()
        training.optimizer.step()
    assert taken[-2:] == [0, 10]  # momenta only


def evaluated(training: Training) -> list[float]:
    found = []
    for step in range(8):
        found.append(training.step())
        if step % 3 == 1:
            with torch.no_grad():
                found.append(training.loss().item())
                found.append(sum(p.abs().sum().item() for p in training.net.parameters()))
    return found


def read_in_between(training: Training) -> list[float]:
    """A view of the memory is held while the next step overwrites it."""
    found, held = [], []
    for _ in range(6):
        found.append(training.step())
        held += [training.net[2].weight.detach()[1, :2].clone(), training.net[4].bias.detach()]
        found.append(training.net[0].weight.detach()[0, 0].item())
        found.append(training.net[2].weight.grad.sum().item())
    return found + [value.sum().item() for value in held]


def gradients_read(training: Training) -> list[float]:
    """Those of a layer norm and of a linear layer's bias are of other shapes in memory."""
    training.net.insert(2, nn.LayerNorm(8).to(training.x.device))
    training.net.insert(5, nn.LayerNorm(8).to(training.x.device))
    training.optimizer = type(training.optimizer)(training.net.parameters(), lr=0.05)
    found = []
    for _ in range(4):
        found.append(training.step())
        for parameter in training.net.parameters():
            assert parameter.grad is not None
            found += [parameter.grad.flatten()[-1].item(), (parameter.grad * 2).sum().item()]
    return found


def restored(training: Training) -> list[float]:
    found = [training.step() for _ in range(3)]
    kept = copy.deepcopy((training.net.state_dict(), training.optimizer.state_dict()))
    found += [training.step() for _ in range(3)]
    training.net.load_state_dict(kept[0])
    training.optimizer.load_state_dict(kept[1])
    return found + [training.step() for _ in range(3)]


def one_replaced(training: Training) -> list[float]:
    found = [training.step() for _ in range(3)]
    with torch.no_grad():
        training.net[4].weight.copy_(torch.eye(8))
        training.net[2].bias.zero_()
    return found + [training.step() for _ in range(3)]


def accumulated(training: Training) -> list[float]:
    found = []
    for step in range(9):
        loss = training.loss()
        loss.backward()
        found.append(loss.item())
        if step % 3 == 2:
            training.optimizer.step()
            training.optimizer.zero_grad(set_to_none=False)
    return found


def frozen_in_between(training: Training) -> list[float]:
    found = [training.step() for _ in range(3)]
    training.net[4].requires_grad_(False)
    found += [training.step() for _ in range(3)]
    training.net[4].requires_grad_(True)
    return found + [training.step() for _ in range(3)]


def two_optimizers(training: Training) -> list[float]:
    other = torch.optim.AdamW(training.net.parameters(), lr=0.01)
    first, found = training.optimizer, []
    for step in range(8):
        training.optimizer = other if step % 3 == 2 else first
        found.append(training.step())
    return found


def averaged(training: Training) -> list[float]:
    average = copy.deepcopy(training.net)
    found = []
    for _ in range(6):
        found.append(training.step())
        with torch.no_grad():
            pairs = [*average.parameters()], [*training.net.parameters()]
            torch._foreach_lerp_(*pairs, 0.1)
            found.append(F.cross_entropy(average(training.x), training.y).item())
    return found


def clipped(training: Training) -> list[float]:
    found = []
    for _ in range(6):
        training.optimizer.zero_grad()
        loss = training.loss()
        loss.backward()
        found.append(nn.utils.clip_grad_norm_(training.net.parameters(), 0.05).item())
        training.optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize(
    "program",
    [
        evaluated, read_in_between, gradients_read, restored, one_replaced, accumulated,
        frozen_in_between, two_optimizers, averaged, clipped,
    ],
)  # fmt: skip
@pytest.mark.parametrize("optimizer", ["momentum", "AdamW"])
def test_programs(program: Callable[[Training], list[float]], optimizer: str, taken: list[int]):
    same(program, optimizer)
    assert max(taken) > 0, "nothing was stacked, so this shows nothing"


def test_another_backend_takes_rows(taken: list[int]):
    def program(training: Training) -> list[float]:
        found = [training.step() for _ in range(3)]
        if training.x.device.type == "tpu":
            fuse.set_backend("numpy")
        return found + [training.step() for _ in range(2)]

    try:
        same(program)
    finally:
        fuse.set_backend("xla")
    same(steps(3))
    assert max(taken) > 0, "nothing was stacked, so this shows nothing"


@pytest.mark.slow
def test_a_stored_executable_takes_and_returns_stacks(tmp_path: Path):
    code = (
        "import fuse\nfrom fuse.device import lazy\n"
        "from tests.backends.xla.test_packed_arrays import Training, DEVICE\n"
        "training = Training(DEVICE)\nprint([training.step() for _ in range(4)])\n"
        "assert lazy.engine().executables.cache.flush(60)\n"
        "print(training.parameters(), f'compiled {fuse.stats()[\"compiles\"]}')"
    )
    first, second = (run(code, FUSE_CACHE_DIR=str(tmp_path)) for _ in range(2))
    (one, compiled), (other, nothing) = (text.split("compiled") for text in (first, second))
    assert (one, int(nothing)) == (other, 0) and int(compiled) > 0


def random_program(seed: int, device: torch.device) -> list[torch.Tensor]:
    """Lists of equal tensors that change in a loop: all at once, one by one, or some of them."""
    draw = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    count, shape = draw.choice([4, 5, 7]), draw.choice([(3,), (2, 3), (1, 4), ()])
    lists = [
        [(torch.rand(shape, generator=generator) + 0.5).to(device) for _ in range(count)]
        for _ in range(4)
    ]
    scale = torch.tensor(0.5).to(device)
    plan = [(draw.randrange(9), draw.sample(range(4), 3), draw.random()) for _ in range(9)]
    found = []
    for step in range(4):
        for kind, (a, b, c), number in plan:
            x, y, z = lists[a], lists[b], lists[c]
            if kind == 0:
                torch._foreach_mul_(x, 0.9 + number / 100 * step)
            elif kind == 1:
                torch._foreach_lerp_(x, y, 0.3)
            elif kind == 2:
                torch._foreach_addcdiv_(x, y, z, [number / 10] * count)
            elif kind == 3:
                lists[a] = [(one * other).sqrt() for one, other in zip(x, y, strict=True)]
            elif kind == 4:
                for one, other in zip(x, z, strict=True):
                    one.mul_(scale).add_(other, alpha=number)
            elif kind == 5:
                x[int(number * count)].add_(y[0].sum() / 100)
            elif kind == 6:
                lists[a] = [one.clone() for one in y]
            elif kind == 7:
                torch._foreach_copy_(x[: count - 1], z[1:])
            else:
                found.append(sum(one.sum() for one in x).cpu())
            torch._foreach_clamp_max_(lists[a], 3.0)
        if step % 2:
            found.append(lists[1][-1].cpu().clone())
    return found + [one.cpu().clone() for each in lists for one in each]


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int):
    with recorder():
        expected, results = random_program(seed, CPU), random_program(seed, DEVICE)
    torch.testing.assert_close(results, expected, rtol=1e-4, atol=1e-5)
