"""Programs whose sizes move at every step, and how many executables they may make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Program = Callable[[torch.device], list[torch.Tensor]]
SIZES = ((4, 7), (5, 9), (6, 13), (4, 11), (7, 10), (5, 12), (6, 8), (8, 15))
"""Of the batch and the length, step by step."""


class Decoder(nn.Module):
    """One layer of a GPT, its embeddings and its head."""

    def __init__(self, words: int = 50, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(128, width)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head, self.heads = nn.Linear(width, words), heads

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        batch, length = ids.shape
        x = self.words(ids) + self.places(torch.arange(length, device=ids.device))
        shape = (batch, length, 3, self.heads, -1)
        q, k, v = self.qkv(self.before(x)).view(shape).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(found.transpose(1, 2).reshape(x.shape))
        x = x + self.down(F.gelu(self.up(self.between(x))))
        head: torch.Tensor = self.head(x)
        return head


def _trained(
    modules: list[nn.Module], make: Callable[..., torch.optim.Optimizer], step: Callable[..., Any]
) -> list[torch.Tensor]:
    optimizer = make([weight for module in modules for weight in module.parameters()])
    values = torch.Generator().manual_seed(1)
    losses = []
    for batch, length in SIZES:
        loss = step(values, batch, length)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())
    return losses  # Adam makes of a gradient that is 0 but for rounding whatever it likes


def language_model(
    device: torch.device, compiled: Callable[..., Any] = lambda function: function
) -> list[torch.Tensor]:
    """Batches of sentences of several lengths."""
    torch.manual_seed(0)
    model = Decoder().to(device)

    @compiled
    def loss_of(ids: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(ids[:, :-1]).reshape(-1, 50), ids[:, 1:].reshape(-1))

    def step(values: torch.Generator, batch: int, length: int) -> Any:
        return loss_of(torch.randint(0, 50, (batch, length + 1), generator=values).to(device))

    return _trained([model], lambda w: torch.optim.AdamW(w, lr=1e-2), step)


def encoder_with_a_mask(device: torch.device) -> list[torch.Tensor]:
    """PyTorch's encoder layer, padded by the program itself."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).to(device)
    head = nn.Linear(16, 3).to(device)

    def step(values: torch.Generator, batch: int, length: int) -> torch.Tensor:
        x = torch.randn(batch, length, 16, generator=values).to(device)
        sizes = torch.randint(2, length + 1, (batch, 1), generator=values)
        padding = (torch.arange(length)[None] >= sizes).to(device)
        wanted = torch.randn(batch, 3, generator=values).to(device)
        made = layer(x, src_key_padding_mask=padding).masked_fill(padding[..., None], 0).sum(1)
        return F.mse_loss(head(made), wanted)

    return _trained([layer, head], lambda w: torch.optim.Adam(w, lr=1e-2), step)


def convolutions(device: torch.device) -> list[torch.Tensor]:
    """Batches of several sizes."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3),
        nn.GroupNorm(2, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4),
    ).to(device)  # fmt: skip

    def step(values: torch.Generator, batch: int, length: int) -> torch.Tensor:
        x = torch.randn(batch + length, 3, 8, 8, generator=values).to(device)
        labels = torch.randint(0, 4, (batch + length,), generator=values).to(device)
        return F.cross_entropy(model(x), labels)

    return _trained([model], lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.9), step)


def images_of_many_sizes(device: torch.device) -> list[torch.Tensor]:
    """Convolutions over height and width that move, with their gradients."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2), nn.ReLU()
    ).to(device)  # fmt: skip
    head = nn.Linear(4, 4).to(device)

    def step(values: torch.Generator, batch: int, length: int) -> torch.Tensor:
        x = torch.randn(2, 3, batch + 4, length + 4, generator=values).to(device)
        labels = torch.randint(0, 4, (2,), generator=values).to(device)
        return F.cross_entropy(head(model(x).mean((2, 3))), labels)

    return _trained([model, head], lambda w: torch.optim.SGD(w, lr=0.1), step)


def recurrent(device: torch.device) -> list[torch.Tensor]:
    """An LSTM over batches of several sizes."""
    torch.manual_seed(0)
    model, head = nn.LSTM(4, 8, batch_first=True).to(device), nn.Linear(8, 3).to(device)

    def step(values: torch.Generator, batch: int, length: int) -> torch.Tensor:
        x = torch.randn(batch + length, 3, 4, generator=values).to(device)
        labels = torch.randint(0, 3, (batch + length,), generator=values).to(device)
        return F.cross_entropy(head(model(x)[0][:, -1]), labels)

    return _trained([model, head], lambda w: torch.optim.SGD(w, lr=0.1), step)


def growing_cache(device: torch.device) -> list[torch.Tensor]:
    """Attention over keys and values that grow by one row a step."""
    torch.manual_seed(0)
    qkv, out = nn.Linear(8, 24).to(device), nn.Linear(8, 8).to(device)
    keys = values = torch.zeros(1, 2, 0, 4, device=device)
    x, found = torch.randn(1, 1, 8).to(device), []
    with torch.no_grad():
        for _ in range(40):
            q, k, v = qkv(x).view(1, 1, 3, 2, 4).permute(2, 0, 3, 1, 4)
            keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
            made = F.scaled_dot_product_attention(q, keys, values)
            x = torch.tanh(out(made.transpose(1, 2).reshape(1, 1, 8)))
            found.append(x.cpu())
    return found


def greedy_decoding(device: torch.device) -> list[torch.Tensor]:
    """A prompt that grows by one token a step, without a cache."""
    torch.manual_seed(0)
    model = Decoder().to(device).eval()
    ids = torch.randint(0, 50, (1, 5)).to(device)
    with torch.no_grad():
        for _ in range(30):
            ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], 1)
            ids[0, -1].item()
    return [ids.cpu()]


def longer_generations(device: torch.device) -> list[torch.Tensor]:
    """Each ends a token later than the one before, in a step that is not as the others are."""
    words, end = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), 21
    words, ends, found = words.to(device), torch.tensor([end]).to(device), []
    for length in range(10, 18):
        ids = torch.ones(1, 3, dtype=torch.long, device=device)
        for at in range(3, length):
            scores = words[ids].mean(1, keepdim=True) @ words.t()
            ids = torch.cat([ids, scores.argmin(-1)], 1)
            done = torch.full((1,), at + 1 == length, device=device)
            assert bool(done | torch.isin(ids[:, -1], ends)) == (at + 1 == length)
        found.append(ids.cpu())
    return found


PROGRAMS: dict[str, tuple[Program, int]] = {
    "language model": (language_model, 16),
    "encoder with a mask": (encoder_with_a_mask, 12),
    "convolutions": (convolutions, 10),
    "images of many sizes": (images_of_many_sizes, 12),
    "recurrent": (recurrent, 10),
    "growing cache": (growing_cache, 16),
    "greedy decoding": (greedy_decoding, 14),
    "longer generations": (longer_generations, 9),
}
