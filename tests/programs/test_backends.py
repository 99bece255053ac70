"""One program on both backends, and backends changed in mid-run: every tensor keeps its value."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch

import fuse

DEVICE = torch.device("tpu")
BACKENDS = ("xla", "numpy")

SCRIPT = """
import json, sys
import torch
import torch.nn.functional as F
import fuse

def losses(device):
    torch.manual_seed(0)
    data, labels = torch.randn(64, 10), torch.arange(64) % 3
    model = torch.nn.Sequential(
        torch.nn.Linear(10, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 3)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data, labels, found = data.to(device), labels.to(device), []
    for step in range(6):
        rows = slice(step * 8, step * 8 + 8)
        loss = F.cross_entropy(model(data[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found).tolist()

print(json.dumps({
    "device": losses("tpu"), "cpu": losses("cpu"), "backend": fuse.get_backend(),
    "operations": fuse.stats()["operations"], "jax": "jax" in sys.modules,
}))
"""


@pytest.fixture(autouse=True)
def backend() -> Iterator[None]:
    """Each test leaves the backend as it found it."""
    before = fuse.get_backend()
    yield
    fuse.set_backend(before)


def on_backend(name: str, program: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The program's result on the host, from the standard random state."""
    fuse.set_backend(name)
    torch.manual_seed(7)
    return program().detach().cpu()


def test_an_environment_variable_chooses_the_backend() -> None:
    environment = os.environ | {"FUSE_BACKEND": "numpy", "FUSE_HOST_FALLBACK": "error"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["backend"] == "numpy"
    assert found["operations"] > 100
    torch.testing.assert_close(found["device"], found["cpu"], rtol=1e-5, atol=1e-6)
    assert found["cpu"][-1] < found["cpu"][0]
    assert not found["jax"]


def test_tensors_keep_their_values(mode: str) -> None:
    """Concrete and pending values, views, in-place writes and dtypes, through three changes."""
    plain = torch.arange(12.0).reshape(3, 4)
    fuse.set_backend("xla")
    made = plain.to(DEVICE)
    pending = made * 2
    view = made.t()[1:]
    half = (made / 3).bfloat16()
    flags, empty = made > 5, torch.empty(0, 3, device=DEVICE)
    made[1] += 100
    expected = plain.clone()
    expected[1] += 100
    for name in ("numpy", "xla", "numpy"):
        fuse.set_backend(name)
        assert fuse.get_backend() == name
        assert torch.equal(pending.cpu(), plain * 2)
        assert torch.equal(view.cpu(), expected.t()[1:])
        assert torch.equal(half.cpu(), (plain / 3).bfloat16())
        assert torch.equal(flags.cpu(), plain > 5)
        assert empty.cpu().shape == (0, 3)
        view.mul_(2)
        expected.t()[1:].mul_(2)
        assert torch.equal(made.cpu(), expected)


def test_training_goes_on_where_it_was(mode: str) -> None:
    """The backend changes at every step: parameters, optimizer state and graph come along."""

    def losses(device: torch.device, change: bool) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
        ).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x, found = torch.linspace(-1, 1, 60).reshape(10, 6).to(device), []
        for step in range(6):
            if change:
                fuse.set_backend(BACKENDS[step % 2])
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            if change:
                fuse.set_backend(BACKENDS[(step + 1) % 2])  # between forward and backward
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    expected = losses(torch.device("cpu"), change=False)
    found = losses(DEVICE, change=True)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert expected[-1] < expected[0]


def test_values_held_by_a_graph_survive() -> None:
    x = torch.linspace(-2, 2, 9, device=DEVICE, requires_grad=True)
    fuse.set_backend("xla")
    y = (x.exp() * x.tanh()).sum()
    fuse.set_backend("numpy")
    (gradient,) = torch.autograd.grad(y, x)
    host = torch.linspace(-2, 2, 9, requires_grad=True)
    (expected,) = torch.autograd.grad((host.exp() * host.tanh()).sum(), host)
    torch.testing.assert_close(gradient.cpu(), expected)


def test_dropout_draws_the_same_mask() -> None:
    def dropped() -> torch.Tensor:
        return torch.nn.functional.dropout(torch.ones(50, 40, device=DEVICE), 0.3)

    masks = [on_backend(name, dropped) for name in BACKENDS]
    assert torch.equal(*masks)
    assert 0.2 < (masks[0] == 0).float().mean() < 0.4


@pytest.mark.parametrize(
    ("draw", "exact"),
    [
        (lambda: torch.rand(999, device=DEVICE), True),
        (lambda: torch.rand(99, device=DEVICE, dtype=torch.float64), True),
        (lambda: torch.randint(-5, 10**12, (99,), device=DEVICE), True),
        (lambda: torch.randperm(200, device=DEVICE), True),
        (lambda: torch.bernoulli(torch.full((99,), 0.4, device=DEVICE)), True),
        (lambda: torch.multinomial(torch.rand(5, 9, device=DEVICE), 4), True),
        (lambda: torch.randn(999, device=DEVICE), False),
        (lambda: torch.empty(99, device=DEVICE).exponential_(2.0), False),
    ],
)
def test_random_numbers_are_the_same(draw: Callable[[], torch.Tensor], exact: bool) -> None:
    first, second = (on_backend(name, draw) for name in BACKENDS)
    if exact:
        assert torch.equal(first, second)
    torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-6)
    assert first.unique().numel() > 1


def test_the_generator_goes_on_across_a_change() -> None:
    """Two draws with a change between them are the two draws without one."""
    torch.manual_seed(3)
    fuse.set_backend("xla")
    kept = [torch.rand(20, device=DEVICE).cpu() for _ in range(2)]
    torch.manual_seed(3)
    changed = [torch.rand(20, device=DEVICE)]
    fuse.set_backend("numpy")
    changed.append(torch.rand(20, device=DEVICE))
    for ours, theirs in zip(changed, kept, strict=True):
        assert torch.equal(ours.cpu(), theirs)
    assert not torch.equal(*kept)


def test_a_mode_may_bring_its_backend() -> None:
    fuse.set_backend("xla")
    with fuse.StrictEager(backend="numpy"):
        assert fuse.get_backend() == "numpy"
        inside = torch.arange(5.0, device=DEVICE).cumsum(0)
    assert fuse.get_backend() == "xla"
    assert inside.tolist() == [0, 1, 3, 6, 10]


def test_memory_is_not_shared_by_mistake() -> None:
    """In-place host code, copies and results that alias their operands."""
    fuse.set_backend("numpy")
    source = torch.ones(4)
    x = source.to(DEVICE)
    source += 1
    y = x.clone()
    z = torch.ops.aten.alias_copy(x)
    x += 5
    back = x.cpu()
    back += 1
    assert x.tolist() == [6.0] * 4
    assert y.tolist() == z.tolist() == [1.0] * 4


def test_unknown_backends_are_refused() -> None:
    with pytest.raises(fuse.errors.ConfigError, match="backend"):
        fuse.set_backend("tensorflow")
