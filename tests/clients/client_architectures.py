from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from tests.clients.client_transformers import LLAMA
from tests.clients.conftest import Case, timed

LIBRARY = "transformers"


def text(device: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(2, 64, (2, 16), generator=generator).to(device)
    return {"input_ids": tokens, "labels": tokens}


def image(device: str) -> dict[str, torch.Tensor]:
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    return {"pixel_values": pixels.to(device), "labels": torch.tensor([0, 1], device=device)}


def sound(device: str) -> dict[str, torch.Tensor]:
    """Spectrograms of 32 frames, and what was said."""
    frames = torch.randn(2, 8, 32, generator=torch.Generator().manual_seed(1))
    return {"input_features": frames.to(device), "labels": text(device)["labels"]}


BERT = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
GPT2 = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
DROPOUTS = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
VIT = {**BERT, "image_size": 16, "patch_size": 4, "num_labels": 2}
del VIT["vocab_size"]
GEMMA = {**LLAMA, "head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8}
MIXTRAL = {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}
WHISPER = {
    "vocab_size": 64,
    "d_model": 32,
    "num_mel_bins": 8,
    "max_source_positions": 16,
    "max_target_positions": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "decoder_start_token_id": 1,
    "dropout": 0.0,
}
for side in ("encoder", "decoder"):
    WHISPER |= {f"{side}_layers": 2, f"{side}_attention_heads": 4, f"{side}_ffn_dim": 64}
MAMBA = {"vocab_size": 64, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2}

MODELS: dict[str, tuple[Callable[[], Any], Callable[[str], Any]]] = {
    "Llama": (
        lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)),
        text,
    ),
    "Qwen3": (
        lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**LLAMA, head_dim=8)),
        text,
    ),
    "Mistral": (
        lambda: transformers.MistralForCausalLM(
            transformers.MistralConfig(**LLAMA, sliding_window=8)
        ),
        text,
    ),
    "Gemma 2": (
        lambda: transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**GEMMA)),
        text,
    ),
    "Mixtral": (
        lambda: transformers.MixtralForCausalLM(transformers.MixtralConfig(**MIXTRAL)),
        text,
    ),
    "Mamba": (
        lambda: transformers.MambaForCausalLM(transformers.MambaConfig(**MAMBA)),
        text,
    ),
    "Whisper": (
        lambda: transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**WHISPER)),
        sound,
    ),
    "GPT-2": (
        lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2, **DROPOUTS)),
        text,
    ),
    "BERT": (lambda: transformers.BertForMaskedLM(transformers.BertConfig(**BERT)), text),
    "T5": (
        lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(**T5, dropout_rate=0.0, decoder_start_token_id=0)
        ),
        text,
    ),
    "ViT": (lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**VIT)), image),
}


@pytest.mark.parametrize("name", MODELS)
def test_training(case: Case, name: str) -> None:
    """Six training steps of two layers by AdamW"""
    build, inputs = MODELS[name]

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        model = build().to(device).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        batch = inputs(device)

        def step() -> torch.Tensor:
            loss: torch.Tensor = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return [timed(step) for _ in range(6)]

    device, cpu = case.compare(run)
    torch.testing.assert_close(device, cpu, rtol=1e-4, atol=1e-5)
    assert case.fallbacks == "0"
