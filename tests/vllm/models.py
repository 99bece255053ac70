"""Small models of three architectures with random weights, and a tokenizer, as vLLM reads them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

END = "<|end|>"
SIZES = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
ARCHITECTURES = ("llama", "qwen3", "gpt2")


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and one that ends a text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    vocabulary[END] = len(vocabulary)
    whole = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    whole.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=whole, eos_token=END, pad_token=END)
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    return fast


def save(architecture: str, folder: Path, seed: int = 0, **changes: int) -> Path:
    """A model of ``architecture`` in ``folder``; its weights are drawn by ``seed``."""
    words = tokenizer()
    common = {"vocab_size": len(words), "eos_token_id": words.eos_token_id, "bos_token_id": None}
    torch.manual_seed(seed)
    if architecture == "gpt2":
        config = GPT2Config(n_embd=128, n_layer=2, n_head=4, n_positions=512, **common)
        model = GPT2LMHeadModel(config)
    else:
        kinds = {
            "llama": (LlamaConfig, LlamaForCausalLM),
            "qwen3": (Qwen3Config, Qwen3ForCausalLM),
        }
        configure, make = kinds[architecture]
        model = make(configure(**{**SIZES, **changes}, **common))
    # As drawn for training the logits are nearly equal; wider, a text does not repeat one token.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def save_adapter(folder: Path, rank: int = 8) -> Path:
    """A LoRA adapter of the small Llama's query projections, as PEFT writes one."""
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for layer in range(SIZES["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = torch.randn(rank, 128, generator=generator)
        tensors[f"{name}.lora_B.weight"] = torch.randn(128, rank, generator=generator) / 4
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps({**settings, "bias": "none"}))
    return folder
