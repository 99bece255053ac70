"""A backend that only knows the interface runs programs through the whole flow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fuse
from fuse.backends.registry import get_backend
from fuse.device import lazy
from fuse.engine.host_calls import HostFallbackWarning
from fuse.errors import ConfigError
from tests.device.helpers import run as run_in_process
from tests.engine import third_backend
from tests.engine.third_backend import TorchBackend
from tests.programs.harness import DEVICE, compare_with_cpu

NAME = f"{third_backend.__name__}:TorchBackend"


@pytest.fixture(autouse=True)
def backend() -> Iterator[TorchBackend]:
    before = fuse.get_backend()
    fuse.set_backend(NAME)
    found = lazy.engine().backend
    assert isinstance(found, TorchBackend)
    executed = found.executed
    yield found
    fuse.set_backend(before)
    assert found.executed > executed, "no chunk of the test ran on it"


def test_it_is_small_and_knows_the_interface_alone() -> None:
    text = Path(third_backend.__file__).read_text()
    assert len(text.splitlines()) < 150
    imports = {line.split()[1] for line in text.splitlines() if line.startswith("from fuse")}
    assert imports <= {
        "fuse.backends.base",
        *(f"fuse.trace.{n}" for n in ("bind", "functional", "node", "spec")),
    }
    assert torch.ones(2, device=DEVICE).add(1).tolist() == [2, 2]


def test_training(mode: str) -> None:
    def program(device: torch.device) -> list[object]:
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64, 8),
            nn.LayerNorm(8),
            nn.Linear(8, 3),
        )
        model = model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        x, y, losses = (
            torch.randn(5, 1, 6, 6).to(device),
            torch.tensor([0, 1, 2, 1, 0]).to(device),
            [],
        )
        for _ in range(6):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]
        return [losses, dict(model.state_dict())]

    compare_with_cpu(program)


def test_views_and_writes_in_place(mode: str) -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        x = torch.arange(24.0).reshape(4, 6).to(device)
        rows, columns = x[1:3], x.t()[::2]
        found = []
        for step in range(6):
            rows.mul_(1.5)
            columns[step % 3] += step
            x[step % 4].fill_(step)
            x.view(-1)[3:9].clamp_(max=20)
            found += [rows + 1, columns.clone(), x.view(torch.int32)[0] >> 1]
        return [*found, x]

    compare_with_cpu(program, runs=6)


def test_random_numbers_follow_the_seed(mode: str) -> None:
    def drawn() -> list[torch.Tensor]:
        torch.manual_seed(3)
        x = F.dropout(torch.ones(400, device=DEVICE), 0.25)
        return [x.cpu(), torch.rand(300, device=DEVICE).cpu(), torch.rand(3, device=DEVICE).cpu()]

    first, second = drawn(), drawn()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert 0.15 < (first[0] == 0).float().mean() < 0.35
    assert not torch.equal(first[1][:3], first[2])
    assert 0.4 < first[1].mean() < 0.6


def test_half_precision_and_functions_of_functions() -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        weight = torch.linspace(-1, 1, 12).reshape(3, 4).to(device)
        batch = torch.linspace(-2, 2, 20).reshape(5, 4).to(device)
        gradient = torch.func.vmap(torch.func.grad(lambda x: (weight @ x).tanh().sum()))(batch)
        return [gradient, (batch.bfloat16() @ weight.t().bfloat16()).float()]

    compare_with_cpu(program, runs=6)


def test_what_it_cannot_do_runs_on_the_host() -> None:
    lazy.engine().host_calls.said.clear()
    with pytest.warns(HostFallbackWarning, match=r"aten::normal_ .*PyTorch has no kernel of"):
        x = torch.randn(3, device=DEVICE)
    assert torch.equal((x + 1).cpu(), x.cpu() + 1)


def test_values_come_along_to_another_backend_and_back() -> None:
    x = torch.arange(4.0, device=DEVICE) + 1
    assert x.tolist() == [1, 2, 3, 4]
    for name in ("numpy", NAME, "xla", NAME):
        fuse.set_backend(name)
        x = x * 2
        half = x[1:3]
        half += 1
        x.sum().item()
    assert x.tolist() == [16, 47, 63, 64]


def test_a_comparison_with_it() -> None:
    found = fuse.compare(
        lambda: torch.linspace(0, 1, 9, device=DEVICE).exp().sum(), backends=("numpy", NAME)
    )
    assert found.agrees
    assert found.operations > 1


def test_it_names_the_device() -> None:
    torch.ones(2, device=DEVICE).sum().item()
    assert torch.tpu.get_device_name() == "PyTorch's CPU kernels"
    assert fuse.get_backend() == "torch"


def test_the_environment_names_it() -> None:
    torch.ones(2, device=DEVICE).sum().item()
    code = (
        "import torch, fuse; x = torch.ones(3, device='tpu') * 2; "
        "print(x.tolist(), fuse.get_backend())"
    )
    found = run_in_process(code, FUSE_BACKEND=NAME)
    assert found.splitlines()[-1] == "[2.0, 2.0, 2.0] torch"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nowhere.at:all", "cannot be imported"),
        ("fuse.errors:describe_nothing", "has no describe_nothing"),
        ("fuse.errors:describe", "missing 1 required"),
        ("fuse.config:mode", "is no fuse.backends.base.Backend"),
        ("tensorflow", "unknown backend 'tensorflow'"),
    ],
)
def test_what_is_no_backend_is_refused(name: str, text: str) -> None:
    torch.ones(2, device=DEVICE).sum().item()
    with pytest.raises(ConfigError, match=text):
        fuse.set_backend(name)
    assert fuse.get_backend() == "torch"
    assert get_backend(NAME) is get_backend(NAME)
