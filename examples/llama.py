"""A small Llama over characters, in plain PyTorch.

RMSNorm before each part, rotary positions, grouped queries, SwiGLU. Its modules have the shapes and
names that a plan of tensor parallelism wants: heads are counted from the width that a rank holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Config:
    """Sizes. Tensor parallelism divides ``heads``, ``shared_heads`` and ``hidden``."""

    alphabet: int
    context: int = 64
    width: int = 128
    layers: int = 4
    heads: int = 8
    shared_heads: int = 4
    hidden: int = 352
    base: float = 10_000.0

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.width // self.heads


def rotations(config: Config) -> torch.Tensor:
    """Cosine and sine of each place's angles, float32[2, context, head // 2]."""
    powers = torch.arange(0, config.head, 2) / config.head
    angles = torch.outer(torch.arange(config.context).float(), config.base**-powers)
    return torch.stack((angles.cos(), angles.sin()))


def rotate(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Turn the pairs (i, i + head // 2) of float32[B, T, H, head] by their places' angles."""
    cosine, sine = turn[:, : x.shape[1], None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Attention(nn.Module):
    """Causal attention over float32[B, T, width]; several queries share a key and a value."""

    def __init__(self, config: Config) -> None:
        """Four projections without bias."""
        super().__init__()
        self.head = config.head
        shared = config.shared_heads * config.head
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key = nn.Linear(config.width, shared, bias=False)
        self.value = nn.Linear(config.width, shared, bias=False)
        self.outward = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        """Same shape out as in; ``turn`` is what ``rotations`` gives."""
        query, key, value = (
            projection(x).unflatten(-1, (-1, self.head))
            for projection in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(
            rotate(query, turn).transpose(1, 2),
            rotate(key, turn).transpose(1, 2),
            value.transpose(1, 2),
            is_causal=True,
            enable_gqa=True,
        )
        joined: torch.Tensor = self.outward(mixed.transpose(1, 2).flatten(2))
        return joined


class FeedForward(nn.Module):
    """SwiGLU over float32[B, T, width]."""

    def __init__(self, config: Config) -> None:
        """A gate, its input and the way back, without bias."""
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.inward = nn.Linear(config.width, config.hidden, bias=False)
        self.outward = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape out as in."""
        found: torch.Tensor = self.outward(F.silu(self.gate(x)) * self.inward(x))
        return found


class Block(nn.Module):
    """One layer over float32[B, T, width]."""

    def __init__(self, config: Config) -> None:
        """Attention and a feed-forward net, each behind its norm."""
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.attention = Attention(config)
        self.forward_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.feed_forward = FeedForward(config)

    def forward(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        """Same shape out as in."""
        x = x + self.attention(self.attention_norm(x), turn)
        summed: torch.Tensor = x + self.feed_forward(self.forward_norm(x))
        return summed


class Llama(nn.Module):
    """int64[B, T] characters, T at most ``context``, to float32[B, T, alphabet] logits."""

    turn: torch.Tensor

    def __init__(self, config: Config) -> None:
        """Weights are drawn anew; seed the generator before."""
        super().__init__()
        self.characters = nn.Embedding(config.alphabet, config.width)
        self.register_buffer("turn", rotations(config), persistent=False)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=1e-5)
        self.head = nn.Linear(config.width, config.alphabet, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        """Logits of the character after each place."""
        x = self.characters(characters)
        for block in self.blocks:
            x = block(x, self.turn)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits
