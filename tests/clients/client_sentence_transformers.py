from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sentence_transformers
import torch
import transformers
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from tests.clients import words
from tests.clients.client_architectures import BERT
from tests.clients.conftest import Case, timed
from tests.clients.steps import equal_losses, training

LIBRARY = "sentence-transformers"
SENTENCES = ["2 3 4", "9 8 7 6 5", "11 12", "2 3 5 4"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A small BERT with a tokenizer whose words are numbers."""
    words.tokenizer().save_pretrained(tmp_path)
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(**BERT)).save_pretrained(tmp_path)
    return tmp_path


def model(saved: Path, device: str) -> Any:
    body = Transformer(str(saved), max_seq_length=16)
    pooling = Pooling(body.get_embedding_dimension())
    return sentence_transformers.SentenceTransformer(modules=[body, pooling], device=device)


def test_encode(case: Case, saved: Path) -> None:
    """`SentenceTransformer(device=...).encode` of sentences of several lengths."""

    def run(device: str) -> list[tuple[float, Any]]:
        encoder = model(saved, device)
        assert encoder.device.type == device
        return [
            timed(lambda: encoder.encode(SENTENCES, show_progress_bar=False).tolist())
            for _ in range(4)
        ]

    device, cpu = case.compare(run)
    torch.testing.assert_close(torch.tensor(device), torch.tensor(cpu), rtol=1e-3, atol=1e-4)


def test_training(case: Case, saved: Path) -> None:
    """`MultipleNegativesRankingLoss`: training steps."""

    def run(device: str) -> list[tuple[float, Any]]:
        encoder = model(saved, device)
        criterion = losses.MultipleNegativesRankingLoss(encoder)
        pairs = [encoder.tokenize(one) for one in (SENTENCES[:2], SENTENCES[2:])]
        features = [
            {k: v.to(device) for k, v in one.items() if torch.is_tensor(v)} for one in pairs
        ]
        labels = torch.zeros(2, device=device)
        return training(encoder, lambda: criterion(features, labels), count=4, lr=1e-3)

    equal_losses(*case.compare(run), rtol=1e-3)
