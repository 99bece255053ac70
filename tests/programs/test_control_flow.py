"""Programs steered by their own data, data loaders, and other ways in which people write loops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.programs.harness import DEVICE, compare_with_cpu

pytestmark = pytest.mark.usefixtures("mode")


def test_a_while_loop_on_a_value():
    def program(device):
        x = torch.tensor([100.0, 7.0]).to(device)
        steps = 0
        while x.max() > 1:
            x = x / 2 if x[0] > x[1] else x - 1
            steps += 1
        return x, steps

    compare_with_cpu(program)


def test_branches_that_change_between_steps():
    """The loss decides which layer runs: several streams share a beginning."""

    def program(device):
        first, second = nn.Linear(3, 3).to(device), nn.Linear(3, 3).to(device)
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.2)
        x = torch.randn(4, 3).to(device)
        taken = []
        for step in range(8):
            layer = first if step % 3 == 0 else second
            loss = layer(x).square().mean()
            if loss.item() > 0.3:
                loss = loss * 2
            taken.append(bool(loss > 0.5))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return taken, first.weight, second.weight

    compare_with_cpu(program, runs=2)


@pytest.mark.filterwarnings("ignore:compilation cache. an entry was not written")
def test_shapes_that_depend_on_data():
    def program(device):
        x = torch.tensor([3, 1, 2, 3, 0, 1]).to(device)
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
        where = torch.nonzero(x > 1)
        picked = torch.masked_select(x, x != 3)
        return values, inverse, counts, where, picked, x[x > 0].float().mean(), x.bincount()

    compare_with_cpu(program)


def test_lengths_that_change():
    """A different number of steps at each call, as text of different lengths gives."""

    def program(device):
        cell, out = nn.Linear(4, 4).to(device), []
        for length in (2, 5, 3, 5, 2):
            x = torch.randn(length, 4).to(device)
            h = torch.zeros(4, device=device)
            for row in x:
                h = torch.tanh(cell(row + h))
            out.append(h)
        torch.stack(out).sum().backward()
        return out, cell.weight.grad

    compare_with_cpu(program, runs=2)


def test_printing_and_formatting():
    def program(device):
        x = torch.tensor([1.0, -2.5]).to(device)
        text = f"{x.sum():.3f} {x[0].item()} {x.tolist()} {bool((x > 0).any())} {int(x[0])}"
        return text, str(x).replace(", device='tpu:0'", ""), len(x), 1.0 in x

    compare_with_cpu(program)


def test_a_data_loader_with_pinned_memory():
    def program(device):
        data = TensorDataset(torch.randn(10, 3), torch.randint(2, (10,)))
        model = nn.Linear(3, 2).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(4)
        loader = DataLoader(
            data,
            batch_size=4,
            shuffle=True,
            pin_memory=device.type != "cpu",
            generator=generator,
        )
        losses = []
        for _ in range(2):
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(
                    model(x.to(device, non_blocking=True)), y.to(device, non_blocking=True)
                )
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses, model.weight

    compare_with_cpu(program, runs=2)


def test_gradient_accumulation_over_micro_batches():
    def program(device):
        model = nn.Linear(3, 1).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x = torch.randn(8, 3).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            for start in range(0, 8, 2):
                (model(x[start : start + 2]).square().mean() / 4).backward()
            optimizer.step()
        return model.weight, model.bias

    compare_with_cpu(program, runs=2)


def test_a_generator_that_stops_half_way():
    """What is recorded and never read must not disturb what comes after it."""

    def program(device):
        def walk(x: torch.Tensor) -> Iterator[torch.Tensor]:
            while True:
                x = x * 1.5 + 1
                yield x

        steps = walk(torch.ones(2, device=device))
        first = [next(steps) for _ in range(3)][-1]
        steps.close()
        return first, first.sum()

    compare_with_cpu(program)


def test_exceptions_in_the_middle_of_a_step():
    def program(device):
        x = torch.ones(3, device=device)
        for step in range(4):
            try:
                x = x + 1
                if step == 2:
                    raise KeyError(step)
                x = x * 2
            except KeyError:
                x = x - 5
        return x

    compare_with_cpu(program)


def test_host_numbers_and_device_tensors_mixed():
    def program(device):
        x = torch.arange(4).to(device)
        half = torch.tensor(0.5)
        return x + half, x * 2.5, 3 / (x + 1), x // 2, 2**x, x.float() ** half, half - x, -x % 3

    compare_with_cpu(program)


def test_a_reinforcement_style_rollout():
    def program(device):
        policy = nn.Linear(2, 2).to(device)
        state, rewards, logs = torch.tensor([0.3, -0.2]).to(device), [], []
        for _ in range(5):
            log = policy(state).log_softmax(-1)
            action = int(log.argmax())
            logs.append(log[action])
            state = state + (0.1 if action else -0.1)
            rewards.append(-state.abs().sum().item())
        loss = -(torch.stack(logs) * torch.tensor(rewards).to(device)).sum()
        loss.backward()
        return loss, rewards, policy.weight.grad

    compare_with_cpu(program)


def test_numpy_and_python_containers():
    def program(device):
        x = torch.as_tensor([[1, 2], [3, 4]], device=device, dtype=torch.float32)
        y = torch.stack([row.sum() for row in x])
        best = max(y)
        rows = sorted(x, key=lambda row: -float(row[0]))
        return y, best, rows, {t.shape for t in rows}, x.cpu().numpy().tolist()

    compare_with_cpu(program)


def test_two_models_take_turns():
    def program(device):
        maker, judge = nn.Linear(2, 3).to(device), nn.Linear(3, 1).to(device)
        first = torch.optim.Adam(maker.parameters(), lr=0.01)
        second = torch.optim.Adam(judge.parameters(), lr=0.01)
        noise, real = torch.randn(4, 2).to(device), torch.randn(4, 3).to(device)
        losses = []
        for _ in range(3):
            second.zero_grad()
            fake = maker(noise)
            loss = F.softplus(judge(fake.detach())).mean() + F.softplus(-judge(real)).mean()
            loss.backward()
            second.step()
            first.zero_grad()
            other = F.softplus(-judge(maker(noise))).mean()
            other.backward()
            first.step()
            losses += [loss.item(), other.item()]
        return losses

    compare_with_cpu(program, runs=2)


def test_the_device_as_a_context_and_a_default():
    with DEVICE:
        model, x = nn.Linear(2, 2), torch.arange(3)
    assert {p.device for p in model.parameters()} | {x.device} == {torch.device("tpu", 0)}
    torch.set_default_device("tpu")
    try:
        assert torch.zeros(2).device.type == "tpu"
    finally:
        torch.set_default_device(None)
