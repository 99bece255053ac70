"""A tokenizer whose words are numbers, for models of 64 tokens that are never downloaded."""

from __future__ import annotations

from typing import Any

import tokenizers
import transformers


def tokenizer(**special: str) -> Any:
    """Words "2" to "63" are the tokens 2 to 63; ``special`` names further special tokens."""
    words = {word: index for index, word in enumerate(["<pad>", "<s>", *map(str, range(2, 64))])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", **special
    )
