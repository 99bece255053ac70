"""Where ``Pipeline`` puts a model once it is extended, on a class of its form."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from fuse.integrations import pipelines


def pipeline(model: Any, **options: Any) -> Any:
    """A pipeline of transformers' form, which knows no accelerator, extended."""

    class Pipeline:
        def __init__(self, model: Any, device: Any = None, binary: bool = False) -> None:
            layers = getattr(model, "hf_device_map", None)
            if layers is not None and device is not None:
                raise ValueError("The model has been loaded with `accelerate`")
            known = isinstance(device, torch.device | str)
            self.device = torch.device(device) if known else torch.device("cpu")

    module = types.SimpleNamespace(Pipeline=Pipeline)
    pipelines.extend(module)
    return module.Pipeline(model, **options)


def model(device: str = "cpu", **fields: Any) -> Any:
    return types.SimpleNamespace(device=torch.device(device), **fields)


@pytest.mark.parametrize(
    ("given", "taken"), [({}, "tpu:0"), ({"device": 0}, "tpu:0"), ({"device": "cpu"}, "cpu")]
)
def test_the_device_is_taken_unless_another_is_named(given: dict[str, Any], taken: str) -> None:
    assert pipeline(model(), **given).device == torch.device(taken)


def test_a_model_stays_on_its_device_and_on_the_cpu_if_told_so() -> None:
    assert pipeline(model("tpu:0")).device == torch.device("tpu:0")
    assert pipeline(model(), device=-1).device == torch.device("cpu")


def test_inputs_go_where_the_first_layers_are() -> None:
    assert pipeline(model(hf_device_map={"a": 0, "b": "cpu"})).device == torch.device("tpu:0")
    assert pipeline(model(hf_device_map={"a": "cpu", "b": 0})).device == torch.device("cpu")
    with pytest.raises(ValueError, match="loaded with `accelerate`"):
        pipeline(model(hf_device_map={"": 0}), device=0)


def test_cuda_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pipeline(model(), device=0).device == torch.device("cpu")  # what its own code says
