"""Small configurations of transformers' architectures, made by the names of their fields."""

from __future__ import annotations

from typing import Any, Final

from transformers import CONFIG_MAPPING

Fields = dict[str, Any]

WIDTH: Final = dict.fromkeys(
    (
        *("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embed_dim", "embedding_size"),
        *("word_embed_proj_dim", "lru_width", "attention_hidden_size"),
    ),
    32,
)
INNER: Final = dict.fromkeys(
    (
        *("intermediate_size", "ffn_dim", "d_ff", "hidden_dim", "ffn_hidden_size"),
        *("encoder_ffn_dim", "decoder_ffn_dim", "expert_ffn_hidden_size"),
    ),
    64,
)
LAYERS: Final = dict.fromkeys(
    (
        *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers"),
        *("num_encoder_layers", "encoder_layers", "decoder_layers"),
    ),
    2,
)
HEADS: Final = dict.fromkeys(
    (
        *("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"),
        *("decoder_attention_heads", "num_encoder_attention_heads"),
        *("num_decoder_attention_heads",),
    ),
    4,
)
EXPERTS: Final[Fields] = {
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
HEAD_SIZES: Final = dict.fromkeys(
    (
        *("head_dim", "d_kv", "kv_channels", "attention_head_size", "qk_rope_head_dim"),
        *("qk_nope_head_dim", "v_head_dim", "state_size"),
    ),
    8,
)
LENGTHS: Final[Fields] = {
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), 64),
    "max_source_positions": 16,
    "max_target_positions": 32,
    "sliding_window": 8,
}
TOKENS: Final[Fields] = {
    "vocab_size": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
SMALL: Final[Fields] = {
    **WIDTH,
    **INNER,
    **LAYERS,
    **HEADS,
    **EXPERTS,
    **HEAD_SIZES,
    **LENGTHS,
    **TOKENS,
    "num_key_value_heads": 2,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "num_labels": 2,
    "image_size": 16,
    "patch_size": 4,
    "num_mel_bins": 8,
}
"""What a field gets that an architecture has, has a number in by default, and can be written."""

LATENT: Final[Fields] = {"num_key_value_heads": 4}
"""Attention by a latent vector has as many keys as queries."""
CONVOLUTIONS: Final[Fields] = {
    "image_size": 32,
    "hidden_sizes": [8, 16, 16, 32],
    "depths": [1, 1, 1, 1],
    "num_hidden_layers": None,
}
WAVES: Final[Fields] = {
    "vocab_size": 64,
    "conv_dim": (16, 16),
    "conv_kernel": (8, 3),
    "conv_stride": (4, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "feat_extract_norm": "layer",
    "do_stable_layer_norm": False,
    "num_codevectors_per_group": 8,
    "codevector_dim": 16,
    "proj_codevector_dim": 16,
    "xvector_output_dim": 16,
    "tdnn_dim": (16, 16),
    "tdnn_kernel": (3, 1),
    "tdnn_dilation": (1, 1),
    "mask_time_prob": 0.0,
    "layerdrop": 0.0,
}
WINDOWS: Final[Fields] = {"num_heads": [2, 2], "window_size": 2}
SPECIAL: Final[dict[str, Fields]] = {
    **dict.fromkeys(("deepseek_v3", "minicpm3"), LATENT),
    "deepseek_v2": {**LATENT, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2},
    **dict.fromkeys(("codegen", "gptj"), {"rotary_dim": 4}),
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe", "ministral"), {"head_dim": 8}),
    "nemotron": {"head_dim": 8, "num_key_value_heads": 2},
    **dict.fromkeys(("jamba", "qwen3_next", "recurrent_gemma"), {"num_hidden_layers": 4}),
    "jamba": {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "falcon": {"head_dim": None},
    "xlnet": {"max_position_embeddings": None, "d_head": 8, "d_inner": 64},
    "prophetnet": {"num_hidden_layers": None},
    "esm": {"vocab_size": 64},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8},
    "convnext": CONVOLUTIONS,
    "convnextv2": CONVOLUTIONS,
    "bit": {**CONVOLUTIONS, "embedding_size": 8, "num_groups": 4},
    "regnet": {**CONVOLUTIONS, "embedding_size": 8, "groups_width": 8},
    "resnet": {**CONVOLUTIONS, "embedding_size": 8},
    "poolformer": {**CONVOLUTIONS, "patch_size": 7},
    "pvt": {**CONVOLUTIONS, "num_attention_heads": [1, 2, 2, 4]},
    "pvt_v2": {**CONVOLUTIONS, "num_attention_heads": [1, 2, 2, 4]},
    "segformer": {**CONVOLUTIONS, "num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 32},
    "swin": {"image_size": 32, "embed_dim": 16, "depths": [1, 2], **WINDOWS},
    "swinv2": {"image_size": 32, "embed_dim": 16, "depths": [1, 2], **WINDOWS},
    "focalnet": {"image_size": 32, "embed_dim": 16, "depths": [1, 1], "hidden_sizes": [16, 32]},
    "mobilenet_v1": {"image_size": 32, "depth_multiplier": 0.25, "min_depth": 8},
    "mobilenet_v2": {"image_size": 32, "depth_multiplier": 0.25},
    "mobilevit": {"image_size": 32, "hidden_sizes": [16, 16, 16], "patch_size": 2},
    "mobilevitv2": {"image_size": 64, "width_multiplier": 0.25, "patch_size": 2},
    "levit": {
        "image_size": 64,
        "hidden_sizes": [16, 32, 32],
        "num_attention_heads": [2, 2, 2],
        "patch_size": None,
    },
    "swiftformer": {"image_size": 64, "embed_dims": [16, 16, 32, 32], "depths": [1, 1, 1, 1]},
    "vit_mae": {
        "decoder_hidden_size": 16,
        "decoder_num_hidden_layers": 1,
        "decoder_num_attention_heads": 2,
        "decoder_intermediate_size": 32,
    },
    "audio-spectrogram-transformer": {"max_length": 16, "num_mel_bins": 16},
    **dict.fromkeys(
        ("data2vec-audio", "hubert", "unispeech", "unispeech-sat", "wav2vec2", "wavlm"), WAVES
    ),
    "wav2vec2-conformer": WAVES,
    "sew": {**WAVES, "squeeze_factor": 1},
    "sew-d": {**WAVES, "squeeze_factor": 1},
    "wav2vec2-bert": {**WAVES, "feature_projection_input_dim": 8},
}
"""What is not as the field's name says; ``None`` leaves the field alone."""


def small(architecture: str) -> Any:
    """A configuration of some ten thousand parameters, without dropout."""
    made = CONFIG_MAPPING[architecture]
    default = made()
    fields = {name: value for name, value in SMALL.items() if _is_number(default, name)}
    fields |= {name: 0.0 for name in vars(default) if _is_dropout(default, name)}
    fields |= SPECIAL.get(architecture, {})
    return made(**{name: value for name, value in fields.items() if value is not None})


def _is_number(default: Any, name: str) -> bool:
    value = getattr(default, name, None)
    return isinstance(value, int) or (name.endswith("token_id") and hasattr(default, name))


def _is_dropout(default: Any, name: str) -> bool:
    return ("drop" in name or "pdrop" in name) and isinstance(getattr(default, name), float)
