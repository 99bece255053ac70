from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses, miners

from tests.clients.conftest import Case
from tests.clients.steps import equal_losses, normal, training

LIBRARY = "pytorch-metric-learning"
LOSSES: dict[str, Any] = {
    "NTXentLoss": lambda: (losses.NTXentLoss(), None),
    "ArcFaceLoss": lambda: (losses.ArcFaceLoss(4, 8), None),
    "TripletMarginLoss with MultiSimilarityMiner": lambda: (
        losses.TripletMarginLoss(),
        miners.MultiSimilarityMiner(),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss(case: Case, name: str) -> None:
    """Embeddings of 16 samples of four classes: training steps"""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        model = torch.nn.Linear(6, 8).to(device)
        criterion, miner = LOSSES[name]()
        criterion = criterion.to(device)
        x, labels = normal(16, 6).to(device), (torch.arange(16) % 4).to(device)

        def loss() -> torch.Tensor:
            embeddings = model(x)
            pairs = (miner(embeddings, labels),) if miner else ()
            value: torch.Tensor = criterion(embeddings, labels, *pairs)
            return value

        return training(model, loss)

    equal_losses(*case.compare(run))
