from __future__ import annotations

import pytest
import torch
import torchmetrics

from tests.clients.conftest import Case

LIBRARY = "torchmetrics"
METRICS = {
    "MulticlassAccuracy": lambda: torchmetrics.classification.MulticlassAccuracy(5),
    "MulticlassF1Score": lambda: torchmetrics.classification.MulticlassF1Score(5),
    "MulticlassConfusionMatrix": lambda: torchmetrics.classification.MulticlassConfusionMatrix(5),
    "MulticlassAUROC": lambda: torchmetrics.classification.MulticlassAUROC(5),
}


@pytest.mark.parametrize("name", METRICS)
def test_metric(case: Case, name: str) -> None:
    """Three batches, then `compute()`."""
    generator = torch.Generator().manual_seed(1)
    batches = [
        (torch.randn(16, 5, generator=generator), torch.randint(0, 5, (16,), generator=generator))
        for _ in range(3)
    ]
    found = []
    for device in ("tpu", "cpu"):
        metric = METRICS[name]().to(device)
        for scores, labels in batches:
            metric.update(scores.to(device), labels.to(device))
        result = metric.compute()
        assert result.device.type == device
        found.append(result.cpu())
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)
