"""Attention, spelled every way PyTorch spells it, and embeddings."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.programs.harness import compare_with_cpu, train

pytestmark = pytest.mark.usefixtures("mode")


@pytest.mark.parametrize("kind", ["plain", "causal", "boolean mask", "float mask", "scale"])
def test_scaled_dot_product_attention(kind: str):
    def program(device):
        q, k, v = (torch.randn(2, 2, 5, 4).to(device).requires_grad_() for _ in range(3))
        options = {
            "plain": {},
            "causal": {"is_causal": True},
            "boolean mask": {"attn_mask": torch.ones(5, 5, dtype=torch.bool).tril().to(device)},
            "float mask": {"attn_mask": torch.randn(5, 5).to(device)},
            "scale": {"scale": 0.3},
        }[kind]
        y = F.scaled_dot_product_attention(q, k, v, **options)
        y.square().sum().backward()
        return y, q.grad, k.grad, v.grad

    compare_with_cpu(program)


def test_multihead_attention_with_masks():
    def program(device):
        model = nn.MultiheadAttention(8, 2, batch_first=True).to(device)
        x = torch.randn(2, 5, 8).to(device)
        pad = torch.tensor([[False] * 5, [False] * 3 + [True] * 2]).to(device)
        causal = nn.Transformer.generate_square_subsequent_mask(5, device=device)
        y, weights = model(x, x, x, key_padding_mask=pad.float().mul(-1e9), attn_mask=causal)
        y.square().mean().backward()
        model.eval()
        with torch.no_grad():
            again, none = model(x, x, x, key_padding_mask=pad, need_weights=False)
        return y, weights, again, none, [p.grad for p in model.parameters()]

    compare_with_cpu(program, fallbacks=frozenset({"_native_multi_head_attention"}))


def test_a_transformer_layer_trains():
    def program(device):
        model = nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, batch_first=True, activation="gelu"
        )
        x = torch.randn(2, 4, 8)
        return train(model, (x,), lambda m, x: m(x)[..., :3].square().mean(), device)

    compare_with_cpu(program, runs=2)


def test_attention_written_out():
    """Projections split by view and chunk, a registered mask, softmax of a masked fill."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8)
            self.register_buffer("mask", torch.ones(6, 6).tril().bool())

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (p.view(b, t, 2, c // 2).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
            score = q @ k.transpose(-2, -1) / math.sqrt(c // 2)
            score = score.masked_fill(~self.mask[:t, :t], float("-inf"))
            return self.out((score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c))

    def program(device):
        x = torch.randn(2, 5, 8)
        return train(Attention(), (x,), lambda m, x: m(x).square().mean(), device)

    compare_with_cpu(program, runs=2)


def test_a_key_value_cache_written_in_place():
    def program(device):
        cache = torch.zeros(2, 6, 4, device=device)
        query = torch.randn(6, 2, 4).to(device)
        read = []
        for t in range(6):
            cache[:, t] = query[t] * 0.5
            score = (cache[:, : t + 1] @ query[t].unsqueeze(-1)).squeeze(-1)
            read.append((score.softmax(-1).unsqueeze(1) @ cache[:, : t + 1]).squeeze(1))
        return torch.stack(read), cache

    compare_with_cpu(program, runs=2)


def test_embeddings_train():
    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 6, padding_idx=0)
            self.bag = nn.EmbeddingBag(10, 6, mode="mean")

        def forward(self, x):
            return self.table(x).mean(1) * self.bag(x)

    def program(device):
        x = torch.tensor([[1, 2, 2, 0], [9, 0, 3, 1]])
        return train(Text(), (x,), lambda m, x: (m(x) - 1).square().sum(), device)

    compare_with_cpu(program, runs=2)


def test_tied_embeddings():
    def program(device):
        table = nn.Embedding(7, 4).to(device)
        head = nn.Linear(4, 7, bias=False).to(device)
        head.weight = table.weight
        x, y = torch.tensor([1, 5, 5]).to(device), torch.tensor([2, 0, 6]).to(device)
        F.cross_entropy(head(table(x)), y, label_smoothing=0.1).backward()
        return table.weight.grad, head.weight is table.weight

    compare_with_cpu(program)
