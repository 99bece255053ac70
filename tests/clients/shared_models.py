"""What transformers' shared test class asks of an architecture, for small ones of each kind."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from tests.clients import client_architectures as small
from tests.clients.client_transformers import LLAMA

Inputs = Callable[[], dict[str, torch.Tensor]]
BATCH, LENGTH = 3, 7


def tokens(length: int = LENGTH) -> torch.Tensor:
    """Numbers of tokens, none of them special."""
    return torch.randint(2, 64, (BATCH, length), generator=torch.Generator().manual_seed(1))


def text() -> dict[str, torch.Tensor]:
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    return {"input_ids": tokens(), "attention_mask": mask}


def ids() -> dict[str, torch.Tensor]:
    return {"input_ids": tokens()}


def pair() -> dict[str, torch.Tensor]:
    return {**text(), "decoder_input_ids": tokens()}


def image() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {"pixel_values": torch.randn(BATCH, 3, 16, 16, generator=generator)}


def sound() -> dict[str, torch.Tensor]:
    frames = torch.randn(BATCH, 8, 32, generator=torch.Generator().manual_seed(1))
    return {"input_features": frames, "decoder_input_ids": tokens()}


@dataclass(frozen=True)
class Model:
    """An architecture: its configuration, its classes and what they read."""

    config: Callable[[], Any]
    classes: tuple[Any, ...]
    inputs: Inputs = text
    encoder_decoder: bool = False
    attentions: bool = True
    length: int = LENGTH
    """Of the sequence that is attended to."""
    traced: bool = True
    """Whether Dynamo takes its loss whole. GPT-2's says something by a logger, a graph's end."""

    @property
    def compiled(self) -> Any:
        """The class that is trained by ``torch.compile``, of text alone."""
        return self.classes[1] if self.inputs is text and self.traced else None


class Tester:
    """What the shared class calls ``model_tester``."""

    is_training = True
    batch_size = BATCH
    num_hidden_layers = 2
    num_attention_heads = 4
    num_choices = 4
    hidden_size = 32
    image_size = 16
    patch_size = 4
    num_masks = 6
    mask_length = 16
    """Patches of an image, without the token of its class."""

    def __init__(self, model: Model, device: str | None) -> None:
        self.model, self.device = model, device
        self.seq_length = self.encoder_seq_length = self.key_length = model.length
        self.decoder_seq_length = LENGTH if model.encoder_decoder else model.length

    def get_config(self) -> Any:
        """A configuration that nobody else has."""
        return self.model.config()

    def prepare_config_and_inputs_for_common(self) -> tuple[Any, dict[str, torch.Tensor]]:
        """A configuration, and inputs on the device."""
        inputs = {name: one.to(self.device) for name, one in self.model.inputs().items()}
        return self.get_config(), copy.copy(inputs)


def classes(prefix: str, *suffixes: str) -> tuple[Any, ...]:
    """Classes of transformers by their names."""
    return tuple(getattr(transformers, prefix + suffix) for suffix in suffixes)


WRITER = ("Model", "ForCausalLM", "ForSequenceClassification", "ForTokenClassification")
MODELS = {
    "Llama": Model(
        lambda: transformers.LlamaConfig(**LLAMA),
        classes("Llama", *WRITER, "ForQuestionAnswering"),
    ),
    "Qwen3": Model(
        lambda: transformers.Qwen3Config(**LLAMA, head_dim=8),
        classes("Qwen3", *WRITER, "ForQuestionAnswering"),
    ),
    "Mistral": Model(
        lambda: transformers.MistralConfig(**LLAMA, sliding_window=8), classes("Mistral", *WRITER)
    ),
    "Gemma 2": Model(lambda: transformers.Gemma2Config(**small.GEMMA), classes("Gemma2", *WRITER)),
    "Mixtral": Model(
        lambda: transformers.MixtralConfig(**small.MIXTRAL, head_dim=8), classes("Mixtral", *WRITER)
    ),
    "GPT-2": Model(
        lambda: transformers.GPT2Config(**small.GPT2, **small.DROPOUTS, pad_token_id=0),
        classes(
            "GPT2", "Model", "LMHeadModel", "ForSequenceClassification", "ForTokenClassification"
        ),
        traced=False,
    ),
    "BERT": Model(
        lambda: transformers.BertConfig(**small.BERT, max_position_embeddings=64),
        classes(
            "Bert",
            *("Model", "ForMaskedLM", "ForMultipleChoice", "ForNextSentencePrediction"),
            *("ForQuestionAnswering", "ForSequenceClassification", "ForTokenClassification"),
        ),
    ),
    "T5": Model(
        lambda: transformers.T5Config(**small.T5, dropout_rate=0.0, decoder_start_token_id=0),
        classes("T5", "Model", "ForConditionalGeneration"),
        pair,
        encoder_decoder=True,
    ),
    "Whisper": Model(
        lambda: transformers.WhisperConfig(**small.WHISPER),
        classes("Whisper", "Model", "ForConditionalGeneration"),
        sound,
        encoder_decoder=True,
        length=16,
    ),
    "ViT": Model(
        lambda: transformers.ViTConfig(**small.VIT, encoder_stride=4),
        classes("ViT", "Model", "ForImageClassification", "ForMaskedImageModeling"),
        image,
        length=17,
    ),
    "Mamba": Model(
        lambda: transformers.MambaConfig(**small.MAMBA),
        classes("Mamba", "Model", "ForCausalLM"),
        ids,
        attentions=False,
    ),
}
