"""Everything that a model of transformers returns, and every gradient, against the CPU.

transformers' shared test class compares a model with itself on one device (make test-transformers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.clients.client_architectures import MODELS
from tests.clients.conftest import Case
from tests.clients.steps import agree

LIBRARY = "transformers"
NAMES = tuple(MODELS)
WITH_TOKENS = tuple(name for name in NAMES if name not in ("ViT", "Whisper"))


def on_host(found: Any) -> Any:
    """The same with every tensor on the CPU."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, found)


def built(name: str, device: str) -> tuple[Any, dict[str, Any]]:
    """The small model of ``name`` and its batch."""
    torch.manual_seed(0)
    build, inputs = MODELS[name]
    return build().to(device), inputs(device)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_outputs(case: Case, attention: str) -> None:
    """Logits, hidden states and attentions of eleven architectures, one row padded on the left"""

    def call(name: str, device: str) -> Callable[[], Any]:
        model, batch = built(name, device)
        asked = {"output_hidden_states": True}
        if name != "Mamba":
            model.set_attn_implementation(attention)
            asked["output_attentions"] = attention == "eager"
        if name in WITH_TOKENS:
            batch["attention_mask"] = torch.ones_like(batch["input_ids"])
            batch["attention_mask"][0, :3] = 0

        def once() -> Any:
            with torch.no_grad():
                found = model.eval()(**batch, **asked)
            return [
                on_host(found[key]) for key in found if "past" not in key and "cache" not in key
            ]

        return once

    without = ("Gemma 2",) if attention == "sdpa" else ()  # it refuses that one
    agree(case, tuple(name for name in NAMES if name not in without), call)
    assert case.fallbacks == "0"


@pytest.mark.parametrize("way", ["kept", "checkpointed", "checkpointed, reentrant"])
def test_gradients(case: Case, way: str) -> None:
    """Every parameter's gradient, eleven architectures, activations"""

    def call(name: str, device: str) -> Callable[[], Any]:
        model, batch = built(name, device)
        model.train()
        if way != "kept":
            model.gradient_checkpointing_enable({"use_reentrant": "reentrant" in way})
            if name in WITH_TOKENS:
                model.enable_input_require_grads()

        def once() -> Any:
            model(**batch).loss.backward()
            found = {key: one.grad for key, one in model.named_parameters()}
            model.zero_grad()
            return on_host(found)

        return once

    agree(case, NAMES, call)
    assert case.fallbacks == "0"


def test_resized(case: Case) -> None:
    """Embeddings, tied and untied, made larger and smaller: logits and gradients"""

    def call(name: str, device: str) -> Callable[[], Any]:
        def once() -> Any:
            model, batch = built(name, device)
            # Without their mean and covariance, new rows are drawn: by the device as it draws.
            model.resize_token_embeddings(70, mean_resizing=False)
            with torch.no_grad():
                for one in (model.get_input_embeddings(), model.get_output_embeddings()):
                    one.weight[64:] = 0.5
            batch["input_ids"] = batch["input_ids"] + 6
            large = model(**batch)
            large.loss.backward()
            gradient = model.get_input_embeddings().weight.grad.cpu()
            model.resize_token_embeddings(40)
            batch["input_ids"] = batch["labels"] = batch["input_ids"] % 40
            tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
            return [tied, gradient, *on_host([large.logits, model(**batch).logits])]

        return once

    names = tuple(name for name in WITH_TOKENS if name != "BERT")
    agree(case, names, call)
