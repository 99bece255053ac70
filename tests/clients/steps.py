"""Loops that several cases share: training, and what is called over and over again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.clients.conftest import Case, timed


def training(
    model: torch.nn.Module, loss: Callable[[], torch.Tensor], count: int = 6, lr: float = 1e-2
) -> list[tuple[float, Any]]:
    """``count`` steps of Adam on the parameters of ``model``: seconds and loss of each."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return value.detach()

    return [timed(step) for _ in range(count)]


def normal(*shape: int, seed: int = 1) -> torch.Tensor:
    """The same normal numbers every time, float32, on the host."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def equal_losses(device: Any, cpu: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Both lists of losses are the same numbers, and the model has learned something."""
    torch.testing.assert_close(device, cpu, rtol=rtol, atol=atol)
    assert cpu[-1] < cpu[0]


Calls = Callable[[str, str], Callable[[], Any]]
TIMES = 6
"""How often each is called: what has come back is run in other ways than what is new."""


def agree(case: Case, names: tuple[str, ...], call: Calls) -> None:
    """``call(name, device)`` makes what is called for ``name``: CPU's results, each time."""

    def run(device: str) -> list[tuple[float, Any]]:
        found = []
        for name in names:
            try:
                once = call(name, device)
                found += [timed(once) for _ in range(TIMES)]
            except Exception as error:
                error.add_note(f"{name} on {device}")
                raise
        return found

    device, cpu = case.compare(run)
    wrong = {}
    for at, pair in enumerate(zip(device, cpu, strict=True)):
        try:
            torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-4)
        except AssertionError as error:
            wrong[f"{names[at // TIMES]}, time {at % TIMES + 1}"] = str(error)
    assert not wrong, wrong
