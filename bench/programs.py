"""The programs that are measured, each as plain PyTorch.

A program is built for a device and returns a function that does one step and reads one
number back, so that every step ends with the host knowing its result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Step = Callable[[], float]


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.first(x)).split(width, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    """Token and position embeddings, blocks, and a head."""

    def __init__(self, layers: int, width: int, heads: int, causal: bool, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(96, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 96)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(places))))


class Residual(nn.Module):
    """A convolution block with a skip connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.body(x))


def _training(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[nn.Module], torch.Tensor],
) -> Step:
    def step(read: bool = True) -> Any:
        optimizer.zero_grad()
        value = loss(model)
        value.backward()
        optimizer.step()
        return value.item() if read else value

    return step


def graphed(step: Callable[..., Any]) -> Step:
    """A training step as a ``torch.accelerator.Graph``: what is replayed is all but the read."""
    step()  # optimizers make their state at their first step
    graph = torch.accelerator.Graph()
    with graph:
        value = step(read=False)

    def replayed() -> float:
        graph.replay()
        return float(value.item())

    return replayed


def _gpt(device: str, layers: int, width: int, heads: int, batch: int) -> Step:
    torch.manual_seed(0)
    model = Transformer(layers, width, heads, True, 64).to(device)
    tokens = torch.randint(0, 96, (batch, 65)).to(device)

    def loss(net: nn.Module) -> torch.Tensor:
        return F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].reshape(-1))

    return _training(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loss)


def gpt_small(device: str) -> Step:
    """Character GPT of 0.5 M parameters, one training step."""
    return _gpt(device, 2, 128, 4, 32)


def gpt_large(device: str) -> Step:
    """Character GPT of 4 M parameters, one training step."""
    return _gpt(device, 5, 256, 8, 16)


def _classifier(device: str, model: nn.Module, shape: tuple[int, ...], classes: int) -> Step:
    torch.manual_seed(0)
    model = model.to(device)
    x, y = torch.randn(shape).to(device), torch.randint(0, classes, (shape[0],)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return _training(model, optimizer, lambda net: F.cross_entropy(net(x), y))


def digits(device: str) -> Step:
    """A small convolutional net on 8x8 images, one training step of 64."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    return _classifier(device, net, (64, 1, 8, 8), 10)


def residual(device: str) -> Step:
    """A residual net of three blocks on 16x16 images, one training step of 16."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), Residual(32), Residual(32), Residual(32),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    return _classifier(device, net, (16, 3, 16, 16), 10)


def lstm(device: str) -> Step:
    """An LSTM unrolled by hand over 32 time steps, one training step."""
    torch.manual_seed(0)
    cell, head = nn.LSTMCell(32, 64).to(device), nn.Linear(64, 8).to(device)
    x = torch.randn(32, 16, 32).to(device)
    parameters = [*cell.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01)

    def step() -> float:
        h, c = x.new_zeros(16, 64), x.new_zeros(16, 64)
        for t in range(32):
            h, c = cell(x[t], (h, c))
        loss = head(h).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def mlp(device: str) -> Step:
    """A small MLP, dominated by overhead, one training step."""
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.Tanh())]
    return _classifier(device, nn.Sequential(*layers, nn.Linear(32, 4)), (16, 32), 4)


def elementwise(device: str) -> Step:
    """A chain of elementwise operations over a million numbers."""
    torch.manual_seed(0)
    x = torch.randn(1_000_000).to(device)

    def step() -> float:
        y = x
        for _ in range(5):
            y = torch.tanh(y * 1.1 + 0.1) - y.sigmoid() * 0.5
        return y.sum().item()

    return step


def adamw(device: str) -> Step:
    """AdamW over 60 tensors."""
    torch.manual_seed(0)
    parameters = [torch.randn(64, 64 + k % 3).to(device).requires_grad_() for k in range(60)]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape).to(device)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)

    def step() -> float:
        optimizer.step()
        return parameters[0].detach()[0, 0].item()

    return step


def bert(device: str) -> Step:
    """Inference of a bidirectional encoder of four layers."""
    torch.manual_seed(0)
    model = Transformer(4, 256, 8, False, 128).to(device).eval()
    tokens = torch.randint(0, 96, (4, 128)).to(device)

    def step() -> float:
        with torch.no_grad():
            return model(tokens).mean().item()

    return step


def decode(device: str) -> Step:
    """Decoding token by token with a growing key-value cache: 48 tokens a step."""
    torch.manual_seed(0)
    width = 128
    tokens = nn.Embedding(96, width).to(device)
    layers = [nn.ModuleList([nn.Linear(width, 3 * width), nn.Linear(width, width)]).to(device)
              for _ in range(2)]  # fmt: skip
    head = nn.Linear(width, 96).to(device)

    def step() -> float:
        token = torch.zeros(1, 1, dtype=torch.long, device=device)
        kept: list[tuple[torch.Tensor, torch.Tensor] | None] = [None, None]
        total = 0
        with torch.no_grad():
            for _ in range(48):
                x = tokens(token)
                for number, (qkv, out) in enumerate(layers):
                    q, k, v = qkv(x).split(width, 2)
                    past = kept[number]
                    if past is not None:
                        k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
                    kept[number] = (k, v)
                    x = x + out(torch.softmax(q @ k.transpose(1, 2) / width**0.5, -1) @ v)
                token = head(x)[:, -1].argmax(-1, keepdim=True)
                total += token.item()
        return float(total)

    return step


@dataclass(frozen=True)
class Program:
    """A named program; ``compilable`` where ``torch.compile`` takes it in reasonable time."""

    name: str
    build: Callable[[str], Step]
    compilable: bool = True


PROGRAMS = (
    Program("gpt 0.5M", gpt_small),
    Program("gpt 4M", gpt_large),
    Program("digits", digits),
    Program("residual", residual),
    Program("lstm", lstm, compilable=False),
    Program("mlp", mlp),
    Program("elementwise", elementwise),
    Program("adamw 60", adamw),
    Program("bert", bert),
    Program("decode", decode, compilable=False),
)
