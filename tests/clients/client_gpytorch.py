from __future__ import annotations

from typing import Any

import gpytorch
import torch

from tests.clients.conftest import Case, timed
from tests.clients.steps import equal_losses, training

LIBRARY = "gpytorch"


class Process(gpytorch.models.ExactGP):
    def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: torch.Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def process(device: str) -> tuple[Any, Any, torch.Tensor]:
    x = torch.linspace(0, 1, 20).to(device)
    y = torch.sin(6 * x)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    return Process(x, y, likelihood).to(device), y, x


def test_exact(case: Case) -> None:
    """An `ExactGP` with an RBF kernel: training by its marginal likelihood."""

    def run(device: str) -> list[tuple[float, Any]]:
        model, y, x = process(device)
        likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        model.train()
        return training(model, lambda: -likelihood(model(x), y), lr=0.1)

    equal_losses(*case.compare(run), rtol=1e-3, atol=1e-4)


def test_predictions(case: Case) -> None:
    """An `ExactGP`'s predictions: mean and variance at new points."""

    def run(device: str) -> list[tuple[float, Any]]:
        model, _, _ = process(device)
        model.eval()
        points = torch.linspace(0.05, 0.95, 7).to(device)

        def call() -> Any:
            with torch.no_grad():
                found = model.likelihood(model(points))
                return torch.stack([found.mean, found.variance]).tolist()

        return [timed(call) for _ in range(4)]

    device, cpu = case.compare(run)
    torch.testing.assert_close(torch.tensor(device), torch.tensor(cpu), rtol=1e-3, atol=1e-3)
