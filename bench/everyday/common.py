"""What the loops are made of: small models, losses, and the table's row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from bench.programs import Transformer

Step = Callable[[], torch.Tensor | float]
Build = Callable[[str], Step]


@dataclass(frozen=True)
class Loop:
    """A named loop: ``build(device)`` gives its step, which returns a loss or another number.

    ``cycle`` steps do what the next ``cycle`` do again: reads, evaluations, lengths. ``draws``
    where it draws random numbers on the device, which are other ones than the CPU's.
    """

    name: str
    build: Build
    cycle: int = 1
    draws: bool = False


def mlp(*widths: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers with activations between them."""
    layers: list[nn.Module] = []
    for before, after in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(before, after), act()]
    return nn.Sequential(*layers[:-1])


def gpt(device: str, layers: int = 2, width: int = 64, length: int = 64) -> Transformer:
    """A small character model."""
    torch.manual_seed(0)
    return Transformer(layers, width, 4, True, length).to(device)


def next_token_loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Cross entropy of each token given those before it."""
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].reshape(-1))


def classes(
    count: int, features: int, kinds: int = 10, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Points on the CPU with labels by chance: what learns them by heart keeps a gradient."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, features, generator=generator)
    return x, torch.randint(0, kinds, (count,), generator=generator)


def batches(*data: torch.Tensor, size: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Slices of ``size`` rows, over and over."""
    while True:
        yield from zip(*(part.split(size) for part in data), strict=True)
