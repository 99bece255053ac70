from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDelta

from tests.clients.conftest import Case, timed
from tests.clients.steps import equal_losses, normal

LIBRARY = "pyro-ppl"


def test_svi(case: Case) -> None:
    """`SVI` of a hierarchical regression with `AutoDelta`, which draws no numbers."""

    def run(device: str) -> list[tuple[float, Any]]:
        pyro.clear_param_store()
        x, y = normal(20, 3).to(device), normal(20, seed=2).to(device)
        zero, one = torch.zeros(3, device=device), torch.ones((), device=device)

        def model() -> None:
            scale = pyro.sample("scale", dist.LogNormal(zero[0], one))
            weight = pyro.sample("weight", dist.Normal(zero, scale).to_event(1))
            with pyro.plate("data", 20):
                pyro.sample("y", dist.Normal(x @ weight, one), obs=y)

        guide = AutoDelta(model, init_loc_fn=pyro.infer.autoguide.init_to_mean)
        svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
        steps = [timed(svi.step) for _ in range(6)]
        assert guide.median()["weight"].device.type == device
        return steps

    equal_losses(*case.compare(run))
