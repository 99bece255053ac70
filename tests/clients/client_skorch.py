from __future__ import annotations

from typing import Any

import skorch
import torch
from sklearn.datasets import load_iris

from tests.clients.conftest import Case
from tests.clients.steps import equal_losses

LIBRARY = "skorch"


def test_classifier(case: Case) -> None:
    """`NeuralNetClassifier(device=...)`: `fit`, then `predict_proba`."""
    x, y = load_iris(return_X_y=True)
    found = {}

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        net = skorch.NeuralNetClassifier(
            layers,
            criterion=torch.nn.CrossEntropyLoss,
            optimizer=torch.optim.Adam,
            lr=0.05,
            max_epochs=4,
            batch_size=50,
            train_split=None,
            verbose=0,
            device=device,
        )
        net.fit(x.astype("float32"), y)
        assert next(net.module_.parameters()).device.type == device
        found[device] = torch.from_numpy(net.predict_proba(x.astype("float32")))
        history = zip(net.history[:, "dur"], net.history[:, "train_loss"], strict=True)
        return list(history)

    equal_losses(*case.compare(run))
    torch.testing.assert_close(found["tpu"], found["cpu"], rtol=1e-3, atol=1e-4)
