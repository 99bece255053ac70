"""Architectures that write, with weights large enough that no two tokens are nearly as likely."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tests.clients.client_architectures import MODELS, sound

DECODERS = ("Llama", "Qwen3", "Mistral", "Gemma 2", "Mixtral", "GPT-2", "Mamba")
ATTENDING = DECODERS[:-1]
"""Those with a cache of keys and values."""
WRITERS = (*DECODERS, "T5", "Whisper")
ROWS, LENGTH = 2, 5


def writer(name: str, device: str, seed: int = 0) -> Any:
    """An architecture's small model, ready to write on ``device``."""
    torch.manual_seed(seed)
    model = MODELS[name][0]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6.0)
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = None
    model.generation_config.suppress_tokens = [0, 1]
    return model.to(device)


def given(name: str, device: str, rows: int = ROWS, length: int = LENGTH) -> dict[str, Any]:
    """What the architecture ``name`` is asked to go on with."""
    if name == "Whisper":
        return {"input_features": sound(device)["input_features"][:rows]}
    generator = torch.Generator().manual_seed(1)
    return {"input_ids": torch.randint(2, 64, (rows, length), generator=generator).to(device)}


def padded(device: str) -> dict[str, Any]:
    """Two prompts, one of them shorter: with padding on its left."""
    tokens = given("Llama", "cpu")["input_ids"]
    mask = torch.ones_like(tokens)
    mask[0, :2] = tokens[0, :2] = 0
    return {"input_ids": tokens.to(device), "attention_mask": mask.to(device)}


@contextmanager
def given_draws() -> Iterator[None]:
    """``torch.multinomial`` of numbers drawn on the host, the same on every device.

    The greatest of logarithms and Gumbel noise are draws without replacement.
    """
    generator = torch.Generator().manual_seed(4)

    def multinomial(probabilities: torch.Tensor, num_samples: int, **_: Any) -> torch.Tensor:
        uniform = torch.rand(probabilities.shape, generator=generator).clamp_min(1e-9)
        noise = -(-uniform.log()).log()
        drawn = probabilities.log() + noise.to(probabilities.device)
        return drawn.topk(num_samples).indices

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "multinomial", multinomial)
        yield
