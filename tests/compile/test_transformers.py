"""Models of transformers, from their configurations, compiled: losses, gradients, generation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fuse
from tests.compile.harness import calls_of
from tests.lanes import only_in

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install it")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
"""What transformers and Dynamo warn of is theirs."""

WORDS, LENGTH = 96, 12
SMALL = {"vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LLAMA_LIKE = {
    **SMALL,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
BERT_LIKE = {
    **SMALL,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
GPT2 = {**SMALL, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
ENCODER_DECODER = {
    **SMALL,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "decoder_start_token_id": 1,
}
T5 = {
    **SMALL,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2LMHeadModel": ("GPT2Config", {**GPT2, **NO_DROPOUT}),
    "LlamaForCausalLM": ("LlamaConfig", LLAMA_LIKE),
    "MistralForCausalLM": ("MistralConfig", {**LLAMA_LIKE, "sliding_window": 8}),
    "Qwen2ForCausalLM": ("Qwen2Config", LLAMA_LIKE),
    "Qwen3ForCausalLM": ("Qwen3Config", {**LLAMA_LIKE, "head_dim": 8}),
    "GemmaForCausalLM": ("GemmaConfig", {**LLAMA_LIKE, "head_dim": 8}),
    "PhiForCausalLM": ("PhiConfig", {**LLAMA_LIKE, **NO_DROPOUT}),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", LLAMA_LIKE),
    "OPTForCausalLM": (
        "OPTConfig",
        {**LLAMA_LIKE, "ffn_dim": 64, "word_embed_proj_dim": 32, "dropout": 0.0},
    ),
    "BertForMaskedLM": ("BertConfig", BERT_LIKE),
    "RobertaForMaskedLM": ("RobertaConfig", BERT_LIKE),
    "ElectraForMaskedLM": ("ElectraConfig", {**BERT_LIKE, "embedding_size": 32}),
    "DistilBertForMaskedLM": (
        "DistilBertConfig",
        {**SMALL, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4, "dropout": 0.0,
         "attention_dropout": 0.0},
    ),
    "T5ForConditionalGeneration": ("T5Config", T5),
    "BartForConditionalGeneration": ("BartConfig", ENCODER_DECODER),
    "MixtralForCausalLM": (
        "MixtralConfig",
        {**LLAMA_LIKE, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
}  # fmt: skip
STEPS = 4


def built(name: str) -> torch.nn.Module:
    """The model from its configuration, with random weights: nothing is downloaded."""
    config, settings = MODELS[name]
    torch.manual_seed(0)
    model: torch.nn.Module = getattr(transformers, name)(getattr(transformers, config)(**settings))
    return model.train()


def trained(model: torch.nn.Module, device: str, compile: Callable[[Any], Any]) -> Any:
    """Losses of a few steps of SGD, and the first step's gradients, on the host."""
    model = copy.deepcopy(model).to(device)
    generator = torch.Generator().manual_seed(5)
    words = torch.randint(3, WORDS, (2, LENGTH), generator=generator).to(device)
    mask = torch.ones_like(words)
    mask[1, LENGTH - 3 :] = 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    run = compile(model)
    losses, gradients = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = run(input_ids=words, attention_mask=mask, labels=words).loss
        loss.backward()
        if step == 0:
            found = [(name, p.grad) for name, p in model.named_parameters() if p.grad is not None]
            gradients = {name: grad.cpu().clone() for name, grad in found}
        optimizer.step()
        losses.append(loss.item())
    return losses, gradients


@pytest.mark.parametrize("name", MODELS)
def test_losses_and_gradients_are_the_cpus(name: str):
    model = built(name)
    losses, gradients = trained(model, "cpu", lambda run: run)
    found, found_gradients = trained(model, "tpu", torch.compile)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(losses), rtol=1e-3, atol=1e-4)
    assert found_gradients.keys() == gradients.keys()
    for parameter, gradient in gradients.items():
        torch.testing.assert_close(
            found_gradients[parameter], gradient, rtol=1e-3, atol=1e-4, msg=lambda text: text
        )


@only_in("compiled", "accelerator", reason="counts what is compiled")
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "GPT2LMHeadModel"])
def test_generation_with_a_static_cache_gives_the_cpus_tokens(name: str):
    model = built(name).eval()
    words = torch.randint(3, WORDS, (2, 7), generator=torch.Generator().manual_seed(1))
    options = {"max_new_tokens": 16, "do_sample": False}
    expected = model.generate(words, attention_mask=torch.ones_like(words), **options)
    model = model.to("tpu")

    def generate() -> torch.Tensor:
        found: torch.Tensor = model.generate(
            words.to("tpu"),
            attention_mask=torch.ones_like(words).to("tpu"),
            cache_implementation="static",
            **options,
        )
        return found

    for _ in range(2):
        assert generate().tolist() == expected.tolist()
    counts = calls_of(generate)
    assert counts["calls"] > 0
    assert (counts["captures"], counts["by_operation"]) == (0, 0)
    assert fuse.stats()["compiles"] == 0
