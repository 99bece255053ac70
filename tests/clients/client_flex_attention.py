"""transformers' models by FlexAttention, which CPU eager does not train: it attends by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.clients.client_architectures import MODELS
from tests.clients.conftest import Case
from tests.clients.steps import agree, equal_losses, training
from tests.clients.writers import given, padded, writer

LIBRARY = "transformers"
FLEXIBLE = ("Llama", "Qwen3", "Mistral", "Gemma 2")
LENGTH = 24
"""Longer than the windows of Mistral and Gemma 2."""


def attending(model: Any, device: str) -> Any:
    """``model`` on ``device``, by FlexAttention where that has gradients."""
    model.set_attn_implementation("flex_attention" if device == "tpu" else "eager")
    return model.to(device)


@pytest.mark.parametrize("name", FLEXIBLE)
def test_training(case: Case, name: str) -> None:
    """`attn_implementation="flex_attention"`: training on a batch with padding"""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        model = attending(MODELS[name][0](), device)
        tokens = given("Llama", device, rows=4, length=LENGTH)["input_ids"]
        mask = torch.ones_like(tokens)
        mask[1, :9] = 0
        labels = tokens.masked_fill(mask == 0, -100)
        labels[1, 9] = -100  # predicted where nothing is seen: undefined
        return training(model, lambda: model(tokens, attention_mask=mask, labels=labels).loss)

    equal_losses(*case.compare(run))
    assert case.fallbacks == "0"


@pytest.mark.parametrize("name", FLEXIBLE)
def test_writing(case: Case, name: str) -> None:
    """`attn_implementation="flex_attention"`: `generate`, two prompts, one of them shorter"""

    def call(_: str, device: str) -> Any:
        model = attending(writer(name, "cpu"), device)
        inputs = padded(device)
        return lambda: model.generate(**inputs, max_new_tokens=10, do_sample=False).tolist()

    agree(case, (name,), call)
