from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, load_model, save_file, save_model

from tests.clients.conftest import Case
from tests.clients.steps import normal

LIBRARY = "safetensors"


def test_file(case: Case, tmp_path: Path) -> None:
    """`save_file` of the device's tensors, `load_file(device=0)`: the same bits."""
    tensors = {
        "float32": normal(3, 4),
        "bfloat16": normal(5).bfloat16(),
        "int64": torch.arange(6),
        "bool": normal(4) > 0,
    }
    path = tmp_path / "tensors.safetensors"
    save_file({name: one.to("tpu") for name, one in tensors.items()}, path)
    loaded = load_file(path, device=0)
    assert {one.device.type for one in loaded.values()} == {"tpu"}
    for found in (loaded, load_file(path)):
        ours = {name: one.cpu() for name, one in found.items()}
        torch.testing.assert_close(ours, tensors, rtol=0, atol=0)


def test_model(case: Case, tmp_path: Path) -> None:
    """`save_model` and `load_model` of a model with tied weights on the device."""
    models = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)) for _ in range(2)]
    for model in models:
        model.to("tpu")
        model[1].weight = model[0].weight
    save_model(models[0], str(tmp_path / "model.safetensors"))
    load_model(models[1], str(tmp_path / "model.safetensors"), device=0)
    ours, theirs = ({k: v.cpu() for k, v in one.state_dict().items()} for one in models)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert models[1][1].weight.device.type == "tpu"
