from __future__ import annotations

from typing import Any

import captum.attr
import pytest
import torch

from tests.clients.conftest import Case, timed
from tests.clients.steps import normal

LIBRARY = "captum"


@pytest.mark.parametrize("name", ["IntegratedGradients", "DeepLift", "FeatureAblation"])
def test_attributions(case: Case, name: str) -> None:
    """Attributions of a small network's scores to its inputs"""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        layers = (torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        model = torch.nn.Sequential(*layers).to(device)
        x = normal(4, 6).to(device)

        def call() -> Any:
            found = getattr(captum.attr, name)(model).attribute(x, target=1)
            assert found.device.type == device
            return found.tolist()

        return [timed(call) for _ in range(4)]

    device, cpu = case.compare(run)
    torch.testing.assert_close(torch.tensor(device), torch.tensor(cpu), rtol=1e-3, atol=1e-4)
