from __future__ import annotations

from typing import Any

import pytest
import torch
import zuko

from tests.clients.conftest import Case
from tests.clients.steps import equal_losses, normal, training

LIBRARY = "zuko"


@pytest.mark.parametrize("name", ["NSF", "MAF"])
def test_flow(case: Case, name: str) -> None:
    """A conditional flow learns a density by `log_prob`"""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        flow = getattr(zuko.flows, name)(2, 3, transforms=2, hidden_features=[16]).to(device)
        x, context = normal(16, 2).to(device), normal(16, 3, seed=2).to(device)
        return training(flow, lambda: -flow(context).log_prob(x).mean(), count=4)

    equal_losses(*case.compare(run), rtol=1e-3)
