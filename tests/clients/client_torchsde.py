from __future__ import annotations

from typing import Any

import torch
import torchsde

from tests.clients.conftest import Case
from tests.clients.steps import equal_losses, normal, training

LIBRARY = "torchsde"


class Noise(torchsde.BaseBrownian):
    """The host's Brownian motion: the device draws other numbers from the same seed."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.inner = torchsde.BrownianInterval(0.0, 1.0, size=(4, 2), entropy=7)
        self.to_device = device

    def __call__(
        self, ta: Any, tb: Any = None, return_U: bool = False, return_A: bool = False
    ) -> Any:
        return self.inner(float(ta), None if tb is None else float(tb)).to(self.to_device)

    def __repr__(self) -> str:
        return f"Noise({self.to_device!r})"

    @property
    def dtype(self) -> Any:
        return torch.float32

    @property
    def device(self) -> Any:
        return torch.device(self.to_device)

    @property
    def shape(self) -> Any:
        return (4, 2)

    @property
    def levy_area_approximation(self) -> str:
        return "none"


class Equation(torch.nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self) -> None:
        super().__init__()
        self.drift, self.diffusion = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def f(self, time: Any, state: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.drift(state))

    def g(self, time: Any, state: torch.Tensor) -> torch.Tensor:
        return 0.2 * torch.sigmoid(self.diffusion(state))


def test_training(case: Case) -> None:
    """A neural SDE by `sdeint`, Euler's method, given noise: training steps."""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        equation, start = Equation().to(device), normal(4, 2).to(device)
        times, noise = torch.tensor([0.0, 0.5, 1.0], device=device), Noise(device)

        def loss() -> torch.Tensor:
            states = torchsde.sdeint(equation, start, times, bm=noise, method="euler", dt=0.1)
            return (states[-1] ** 2).mean()

        return training(equation, loss, count=4)

    equal_losses(*case.compare(run), rtol=1e-3)
