"""What transformers' test classes ask of an architecture: its classes, inputs and numbers."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Final

import torch
import transformers
from transformers.models.auto import modeling_auto as auto

from tests.upstream.transformers import architectures as known
from tests.upstream.transformers.configurations import small

BATCH: Final = 3
LENGTH: Final = 7
HEADS: Final = {
    known.WRITERS: ("CAUSAL_LM", "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION"),
    known.READERS: (
        *("MASKED_LM", "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION", "QUESTION_ANSWERING"),
        "MULTIPLE_CHOICE",
    ),
    known.TRANSLATORS: ("SEQ_TO_SEQ_CAUSAL_LM",),
    known.SEERS: ("IMAGE_CLASSIFICATION", "SEMANTIC_SEGMENTATION", "MASKED_IMAGE_MODELING"),
    known.LISTENERS: ("AUDIO_CLASSIFICATION", "CTC", "SPEECH_SEQ_2_SEQ"),
}
"""By what is read, the tasks whose models are tested, beside the model without a head."""
UNTESTED: Final = (
    "LongformerForQuestionAnswering",
    "BeitForSemanticSegmentation",
    "Data2VecVisionForSemanticSegmentation",
)
"""They read what the others of their architectures do not."""


def model_classes(architecture: str) -> tuple[Any, ...]:
    """The model itself, then one for each task that it has."""
    [tasks] = [heads for names, heads in HEADS.items() if architecture in names]
    tables = [auto.MODEL_MAPPING_NAMES]
    tables += [getattr(auto, f"MODEL_FOR_{task}_MAPPING_NAMES") for task in tasks]
    found = [table[architecture] for table in tables if architecture in table]
    names = [one if isinstance(one, str) else one[0] for one in found]
    return tuple(
        dict.fromkeys(getattr(transformers, name) for name in names if name not in UNTESTED)
    )


def generator() -> torch.Generator:
    """Of the inputs: the same ones on every device."""
    return torch.Generator().manual_seed(1)


def tokens(length: int = LENGTH) -> torch.Tensor:
    """Numbers of tokens, none of them special: [BATCH, length]."""
    return torch.randint(2, 64, (BATCH, length), generator=generator())


def sound(architecture: str, config: Any) -> dict[str, torch.Tensor]:
    """Waves of 400 samples, or spectrograms."""
    if architecture == "whisper":
        frames = torch.randn(BATCH, config.num_mel_bins, 32, generator=generator())
        return {"input_features": frames, "decoder_input_ids": tokens()}
    if architecture == "audio-spectrogram-transformer":
        shape = (BATCH, config.max_length, config.num_mel_bins)
        return {"input_values": torch.randn(shape, generator=generator())}
    if architecture == "wav2vec2-bert":
        shape = (BATCH, 20, config.feature_projection_input_dim)
        return {"input_features": torch.randn(shape, generator=generator())}
    return {"input_values": torch.randn(BATCH, 400, generator=generator())}


def inputs(architecture: str, config: Any) -> dict[str, torch.Tensor]:
    """What every class of the architecture reads, on the CPU."""
    if architecture in known.LISTENERS:
        return sound(architecture, config)
    if architecture in known.SEERS:
        size = getattr(config, "image_size", 32)
        size = size if isinstance(size, int) else size[0]
        shape = (BATCH, config.num_channels, size, size)
        found = {"pixel_values": torch.randn(shape, generator=generator())}
        if (
            architecture == "vit_mae"
        ):  # which patches it sees: a draw of each device's own otherwise
            patches = (size // config.patch_size) ** 2
            found["noise"] = torch.rand(BATCH, patches, generator=generator())
        return found
    found = {"input_ids": tokens(), "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.int64)}
    if architecture in known.TRANSLATORS:
        found["decoder_input_ids"] = tokens()
    read = inspect.signature(model_classes(architecture)[0].forward).parameters
    return {name: one for name, one in found.items() if name in read}


class Tester:
    """What the shared classes call ``model_tester``."""

    is_training = True
    batch_size = BATCH
    num_choices = 4
    num_masks = 6
    mask_length = 16

    def __init__(self, architecture: str, device: str) -> None:
        self.architecture, self.device = architecture, device
        config = self.get_config()
        self.num_hidden_layers = getattr(config, "num_hidden_layers", 2)
        self.num_attention_heads = getattr(config, "num_attention_heads", 4)
        self.hidden_size = getattr(config, "hidden_size", 32)
        self.image_size = getattr(config, "image_size", 16)
        self.patch_size = getattr(config, "patch_size", 4)
        self.seq_length = self._length(config)
        self.encoder_seq_length = self.key_length = self.seq_length
        self.decoder_seq_length = LENGTH if config.is_encoder_decoder else self.seq_length

    def _length(self, config: Any) -> int:
        """Of the sequence that is attended to."""
        if self.architecture in known.SEERS and isinstance(self.image_size, int):
            return (self.image_size // self.patch_size) ** 2 + 1
        return int(getattr(config, "max_source_positions", LENGTH))

    def get_config(self) -> Any:
        """A configuration that nobody else has."""
        return small(self.architecture)

    def prepare_config_and_inputs_for_common(self) -> tuple[Any, dict[str, torch.Tensor]]:
        """A configuration, and inputs on the device."""
        config = self.get_config()
        given = inputs(self.architecture, config)
        return config, {name: one.to(self.device) for name, one in given.items()}


def trained(architecture: str) -> Any:
    """The class that is trained by ``torch.compile``: of text, with a loss for tokens.

    The test reads every parameter's gradient; XLNet's embedding of masks has none.
    """
    if architecture not in known.WRITERS or architecture == "xlnet":
        return None
    return model_classes(architecture)[-1 if len(model_classes(architecture)) == 1 else 1]


@functools.cache
def has_attentions(architecture: str) -> bool:
    """Whether the model's layers attend."""
    config = small(architecture)
    return any(hasattr(config, name) for name in ("num_attention_heads", "n_head", "num_heads"))
