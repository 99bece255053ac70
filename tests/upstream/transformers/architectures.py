"""The architectures that are tested, by what they read: transformers' names of them."""

from __future__ import annotations

from typing import Final

WRITERS: Final = (
    *("afmoe", "apertus", "arcee", "aria_text", "bert-generation", "biogpt", "bitnet", "bloom"),
    *("codegen", "cohere", "cohere2", "cohere2_moe", "deepseek_v2", "deepseek_v3", "diffllama"),
    *("ernie4_5", "ernie4_5_moe", "exaone4", "falcon", "falcon_h1", "falcon_mamba", "flex_olmo"),
    *("gemma", "gemma2", "gemma3_text", "glm", "glm4", "glm4_moe", "gpt2", "gpt_bigcode"),
    *("gpt_neo", "gpt_neox", "gpt_neox_japanese", "gpt_oss", "gptj", "granite", "granitemoe"),
    *("granitemoeshared", "helium", "hunyuan_v1_dense", "hunyuan_v1_moe", "hy_v3", "hyperclovax"),
    *("jais2", "jamba", "jetmoe", "lfm2", "llama", "llama4_text", "mamba", "mimo_v2_flash"),
    *("minicpm3", "minimax", "minimax_m2", "ministral", "mistral", "mixtral"),
    *("modernbert-decoder", "mpt", "nanochat", "nemotron", "olmo", "olmo2", "olmo3", "olmo_hybrid"),
    *("olmoe", "openai-gpt", "opt", "persimmon", "phi", "phi3", "phimoe", "qwen2", "qwen2_moe"),
    *("qwen3", "qwen3_moe", "qwen3_next", "recurrent_gemma", "rwkv", "seed_oss", "smollm3"),
    *("solar_open", "stablelm", "starcoder2", "vaultgemma", "xglm", "xlnet"),
)
"""Tokens, each from those before it."""

READERS: Final = (
    *("albert", "bert", "big_bird", "camembert", "convbert", "data2vec-text", "deberta"),
    *("deberta-v2", "distilbert", "electra", "ernie", "esm", "eurobert", "flaubert", "fnet"),
    *("ibert", "layoutlm", "longformer", "megatron-bert", "mobilebert", "modernbert", "mpnet"),
    *("mra", "nomic_bert", "nystromformer", "rembert", "roberta", "roberta-prelayernorm"),
    *("roformer", "squeezebert", "tapas", "xlm", "xlm-roberta", "xlm-roberta-xl", "yoso"),
)
"""Tokens, all at once."""

TRANSLATORS: Final = (
    *("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "fsmt", "led", "longt5"),
    *("m2m_100", "marian", "mbart", "mt5", "mvp", "nllb-moe", "pegasus", "pegasus_x", "plbart"),
    *("prophetnet", "switch_transformers", "t5", "umt5"),
)
"""Tokens from tokens."""

SEERS: Final = (
    *("beit", "bit", "convnext", "convnextv2", "data2vec-vision", "deit", "dinov2"),
    *("dinov2_with_registers", "focalnet", "ijepa", "levit"),
    *("mobilenet_v1", "mobilenet_v2", "mobilevit", "mobilevitv2", "poolformer", "pvt", "pvt_v2"),
    *("regnet", "resnet", "segformer", "swiftformer", "swin", "swinv2", "vit", "vit_mae"),
    "vit_msn",
)
"""Images."""

LISTENERS: Final = (
    *("audio-spectrogram-transformer", "data2vec-audio", "hubert", "sew", "sew-d", "unispeech"),
    *("unispeech-sat", "wav2vec2", "wav2vec2-bert", "wav2vec2-conformer", "wavlm", "whisper"),
)
"""Sound."""

ARCHITECTURES: Final = (*WRITERS, *READERS, *TRANSLATORS, *SEERS, *LISTENERS)
