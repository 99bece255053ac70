from __future__ import annotations

import time
from typing import Any

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss

from tests.clients.conftest import Case
from tests.clients.steps import normal

LIBRARY = "pytorch-ignite"


def test_engines(case: Case) -> None:
    """`create_supervised_trainer` and an evaluator with metrics, `device=...`."""
    evaluated = {}

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        layers = (torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        model = torch.nn.Sequential(*layers).to(device)
        data = torch.utils.data.TensorDataset(normal(32, 6), torch.arange(32) % 3)
        loader = torch.utils.data.DataLoader(data, batch_size=8)
        criterion = torch.nn.CrossEntropyLoss()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        trainer = create_supervised_trainer(model, optimizer, criterion, device=device)
        metrics = {"accuracy": Accuracy(device=device), "loss": Loss(criterion, device=device)}
        evaluator = create_supervised_evaluator(model, metrics, device=device)
        steps: list[tuple[float, Any]] = []
        start = [0.0]

        @trainer.on(Events.ITERATION_STARTED)
        def begin() -> None:
            start[0] = time.perf_counter()

        @trainer.on(Events.ITERATION_COMPLETED)
        def end() -> None:
            steps.append((time.perf_counter() - start[0], trainer.state.output))

        trainer.run(loader, max_epochs=2)
        evaluated[device] = evaluator.run(loader).metrics
        assert next(model.parameters()).device.type == device
        return steps

    device, cpu = case.compare(run)
    torch.testing.assert_close(device, cpu, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(evaluated["tpu"], evaluated["cpu"], rtol=1e-4, atol=1e-5)
