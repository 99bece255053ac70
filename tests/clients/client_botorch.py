from __future__ import annotations

from typing import Any

import botorch
import torch
from botorch.acquisition import LogExpectedImprovement
from gpytorch.mlls import ExactMarginalLogLikelihood

from tests.clients.conftest import Case, timed

LIBRARY = "botorch"


def test_acquisition(case: Case) -> None:
    """`SingleTaskGP` fitted by `fit_gpytorch_mll`, then `LogExpectedImprovement` at points."""

    def run(device: str) -> list[tuple[float, Any]]:
        generator = torch.Generator().manual_seed(1)
        x = torch.rand(10, 2, dtype=torch.float64, generator=generator).to(device)
        y = -((x - 0.5) ** 2).sum(1, keepdim=True)
        model = botorch.models.SingleTaskGP(x, y)
        likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
        points = torch.rand(5, 1, 2, dtype=torch.float64, generator=generator).to(device)

        def fit() -> Any:
            botorch.fit.fit_gpytorch_mll(likelihood, optimizer_kwargs={"options": {"maxiter": 10}})
            return model.covar_module.lengthscale.flatten().tolist()

        def call() -> Any:
            with torch.no_grad():
                values = LogExpectedImprovement(model, best_f=y.max())(points)
                assert values.device.type == device
                return values.tolist()

        return [timed(fit), *[timed(call) for _ in range(4)]]

    device, cpu = case.compare(run)
    for ours, theirs in zip(device, cpu, strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-2, atol=1e-2)
