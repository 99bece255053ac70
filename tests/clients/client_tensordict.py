from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential

from tests.clients.conftest import Case
from tests.clients.steps import equal_losses, normal, training

LIBRARY = "tensordict"


def test_modules(case: Case) -> None:
    """`TensorDictSequential` of two modules: training steps."""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        model = TensorDictSequential(
            TensorDictModule(torch.nn.Linear(4, 16), in_keys=["x"], out_keys=["hidden"]),
            TensorDictModule(torch.nn.Tanh(), in_keys=["hidden"], out_keys=["hidden"]),
            TensorDictModule(torch.nn.Linear(16, 2), in_keys=["hidden"], out_keys=["y"]),
        ).to(device)
        data = TensorDict({"x": normal(8, 4), "goal": normal(8, 2, seed=2)}, batch_size=[8])
        data = data.to(device)
        assert data.device.type == device

        def loss() -> torch.Tensor:
            out = model(data.clone())
            return torch.nn.functional.mse_loss(out["y"], out["goal"])

        return training(model, loss)

    equal_losses(*case.compare(run))


def test_operations(case: Case, tmp_path: Path) -> None:
    """A `TensorDict` moved, sliced, stacked, reshaped, written to and saved."""
    found = []
    for device in ("tpu", "cpu"):
        data = TensorDict({"a": normal(4, 3), "b": {"c": torch.arange(4)}}, batch_size=[4])
        data = data.to(device)
        data[1:3] = data[:2].clone() * 2
        both = torch.stack([data, data + 1], 0).reshape(-1)
        both["a"] = both["a"].cumsum(0)
        assert both["b", "c"].device.type == device
        both.save(tmp_path / device)
        found.append(TensorDict.load(tmp_path / device).to("cpu"))
    for key in ("a", ("b", "c")):
        torch.testing.assert_close(found[0][key], found[1][key])
