"""A steady loop makes nothing new: numbers and offsets that move become dynamic, once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import nn

import fuse
from fuse.device import lazy
from tests.device.helpers import DEVICE, made, mode
from tests.lanes import only_in

pytestmark = only_in("compiled", "accelerator", reason="counts what numbers that move compile")

STEPS = 9


def made_after_the_third(step: Callable[[int], object], steps: int = STEPS) -> int:
    """Executables made by steps 4 and later of a loop."""
    for number in range(3):
        step(number)
    torch.tpu.synchronize()
    before = made()
    for number in range(3, steps):
        step(number)
    torch.tpu.synchronize()
    return made() - before


def small_step(optimizer_of) -> Callable[..., float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).to(DEVICE)
    optimizer = optimizer_of(model.parameters())

    def step(x: torch.Tensor, y: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    step.optimizer = optimizer
    return step


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "Adam one by one": lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_learning_rate_that_changes_at_every_step(name: str):
    step = small_step(OPTIMIZERS[name])
    x, y = torch.randn(6, 4).to(DEVICE), torch.randn(6, 2).to(DEVICE)

    def once(number: int) -> None:
        step.optimizer.param_groups[0]["lr"] = 0.1 / (1 + number)
        step(x, y)

    assert made_after_the_third(once) == 0


@pytest.mark.parametrize("name", ["AdamW", "NAdam", "ASGD"])
def test_an_optimizer_s_numbers_vary_from_the_second_step_on(name: str):
    """The first step makes state and is another stream, whose lines pass other numbers."""
    step = small_step(lambda parameters: getattr(torch.optim, name)(parameters, lr=0.01))
    x, y = torch.randn(5, 4).to(DEVICE), torch.randn(5, 2).to(DEVICE)
    losses = [step(x, y) for _ in range(2)]
    torch.tpu.synchronize()
    before = made()
    losses += [step(x, y) for _ in range(4)]
    torch.tpu.synchronize()
    assert made() == before
    assert len(set(losses)) == 6


def test_minibatches_at_moving_offsets():
    step = small_step(OPTIMIZERS["SGD"])
    data, target = torch.randn(64, 4), torch.randn(64, 2)
    on_device, wanted = data.to(DEVICE), target.to(DEVICE)
    losses = []

    def once(number: int) -> None:
        i = (number * 7) % 56
        losses.append(step(on_device[i : i + 5], wanted[i : i + 5]))

    assert made_after_the_third(once) == 0
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    expected = []
    for number in range(STEPS):
        i = (number * 7) % 56
        loss = (model(data[i : i + 5]) - target[i : i + 5]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert losses == pytest.approx(expected, rel=1e-4)


def test_a_cache_written_at_a_moving_position():
    cache = torch.zeros(2, 16, 3, device=DEVICE)
    k = torch.randn(16, 2, 3)
    rows = k.to(DEVICE)

    def once(t: int) -> None:
        cache[:, t] = rows[t] * 2
        cache.sum().item()

    assert made_after_the_third(once, 12) == 0
    torch.testing.assert_close(cache[:, :12].cpu(), k[:12].transpose(0, 1) * 2)
    assert cache[:, 12:].abs().sum().item() == 0


SCALARS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "add": lambda x, i: x + i,
    "add a float": lambda x, i: x + i / 3,
    "multiply in place": lambda x, i: x.clone().mul_(1 + i / 7),
    "alpha": lambda x, i: torch.add(x, x, alpha=i + 0.5),
    "fill": lambda x, i: torch.full((16,), float(i), device=x.device) + x,
    "fill_": lambda x, i: x.clone().fill_(i),
    "compare": lambda x, i: x > i,
    "clamp": lambda x, i: x.clamp(max=0.1 * i),
    "power": lambda x, i: x.abs() ** (i + 0.5),
    "host tensor": lambda x, i: x * torch.tensor(i * 1.5),
    "lerp": lambda x, i: x.lerp(x + 1, i / 10),
    "addcmul": lambda x, i: torch.addcmul(x, x, x, value=i / 5),
    "masked fill": lambda x, i: x.masked_fill(x > 0, float(i)),
    "foreach": lambda x, i: torch._foreach_add([x, x], float(i))[1],
    "foreach list": lambda x, i: torch._foreach_mul([x, x], [i + 1.0, i + 2.0])[1],
    "select": lambda x, i: x.view(-1)[i] * 2,
    "narrow": lambda x, i: x.view(-1).narrow(0, i, 2) + 1,
    "columns": lambda x, i: x.view(4, 4)[:, i % 3 : i % 3 + 2] + 1,
    "write a row": lambda x, i: x.clone().view(4, 4)[i % 4].zero_(),
}


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("chosen", ["fused", "strict"])
def test_a_number_that_moves(name: str, chosen: str):
    host = torch.linspace(-2, 2, 16)
    x = host.to(DEVICE)
    found = []
    with mode(chosen):
        assert made_after_the_third(lambda i: found.append(SCALARS[name](x, i).cpu())) == 0
    for number, value in enumerate(found):
        torch.testing.assert_close(value, SCALARS[name](host, number), rtol=1e-5, atol=1e-6)


def test_numbers_that_shape_a_result_are_no_dynamic_numbers():
    """Both ends moving together keep the size; one end alone changes it."""
    for start, end in [(0, 2), (1, 3), (0, 5), (3, 5), (0, 1), (0, 9)]:
        assert torch.arange(start, end, device=DEVICE).tolist() == list(range(start, end))
    for start, end, step in [(0, 8, 4), (0, 4, 2), (0, 9, 1), (1, 5, 2)]:
        assert torch.arange(start, end, step, device=DEVICE).tolist() == list(
            range(start, end, step)
        )


def test_equal_and_different_dtypes_of_numbers():
    """An integer and a float in one place are two programs, with two dtypes."""
    x = torch.arange(3, device=DEVICE)
    for number in (1, 2, 1.5, 3, 2.5, True):
        found, expected = (x * number).cpu(), torch.arange(3) * number
        assert found.dtype == expected.dtype and torch.equal(found, expected)


def test_a_loop_without_host_reads_is_bounded_and_makes_nothing():
    core = lazy.core()
    limit = 96
    core.set_limit(limit)
    try:
        state = torch.zeros(4, device=DEVICE)
        w = torch.full((4,), 0.5, device=DEVICE)

        def steps(count: int) -> None:
            nonlocal state
            for _ in range(count):
                state = (state * w + 1).tanh() * 1.5 - 0.25

        steps(400)
        before, known, traces = made(), fuse.stats()["known_calls"], fuse.stats()["traces"]
        storages = torch.tpu.memory_stats()["allocation.all.current"]
        steps(400)
        after = fuse.stats()
        assert made() == before
        assert after["known_calls"] == known
        assert after["traces"] - traces >= 400 * 5 // limit
        assert abs(torch.tpu.memory_stats()["allocation.all.current"] - storages) <= limit
        host = torch.zeros(4)
        for _ in range(800):
            host = (host * 0.5 + 1).tanh() * 1.5 - 0.25
        torch.testing.assert_close(state.cpu(), host)
    finally:
        core.set_limit(lazy.engine().max_operations)


def test_training_without_host_reads_makes_nothing():
    step = small_step(lambda p: torch.optim.SGD(p, lr=0.1))
    x, y = torch.randn(6, 4).to(DEVICE), torch.randn(6, 2).to(DEVICE)
    model_step = step.optimizer

    def once(_: int) -> None:
        group = model_step.param_groups[0]["params"]
        for p in group:
            p.grad = p.detach() * 0.1
        model_step.step()

    step(x, y)
    assert made_after_the_third(once, 20) == 0


def test_what_the_garbage_collector_frees_late_makes_nothing():
    x = torch.ones(4, device=DEVICE)
    kept: list[torch.Tensor] = []

    def once(number: int) -> None:
        a, b = x * 2, x + 1
        c = a * b
        if number < 2:
            kept.append(a)  # the first runs hold on to more than the later ones
        c.sum().item()

    assert made_after_the_third(once) == 0


def test_values_that_are_kept_in_ever_new_ways_make_few_executables():
    choose = random.Random(0)
    host = torch.linspace(-1, 1, 16)
    before = made()
    for _ in range(40):
        kept = []
        value, wanted = host.to(DEVICE), host
        for _ in range(8):
            value, wanted = torch.tanh(value * 1.5), torch.tanh(wanted * 1.5)
            if choose.random() < 0.5:
                kept.append((value, wanted))
        value.sum().item()
        for one, other in kept:
            torch.testing.assert_close(one.cpu(), other)
    assert made() - before <= 10  # of five plans and their executables; without a bound, 32


def test_memory_that_is_free_in_ever_new_ways_makes_few_executables():
    choose = random.Random(0)
    host = [torch.linspace(-1, 1, 16) + number for number in range(8)]
    state = [one.to(DEVICE) for one in host]
    before = made()
    for _ in range(60):
        new = [(torch.tanh(one * 0.9) + 0.5, torch.tanh(two * 0.9) + 0.5)
               for one, two in zip(state, host, strict=True)]  # fmt: skip
        # What is kept of the last step must not be overwritten by this one.
        kept = [pair for pair in zip(state, host, strict=True) if choose.random() < 0.5]
        state, host = map(list, zip(*new, strict=True))
        del new
        sum(one.sum() for one in state).item()
        for one, other in [*kept, *zip(state, host, strict=True)]:
            torch.testing.assert_close(one.cpu(), other)
        kept.clear()
    assert made() - before <= 18  # of nine plans and their executables; without a bound, 38
