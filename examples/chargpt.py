"""A character-level GPT of about half a million parameters, in plain PyTorch.

    python examples/chargpt.py --device tpu --steps 300

It learns to write like the text of Python's own documentation, which every Python
carries in ``pydoc_data.topics``. ``--device`` is the only difference between a run on
the CPU and one on the ``tpu`` device.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pydoc_data.topics import topics

import torch
from torch import nn
from torch.nn import functional as F

CONTEXT = 64
BATCH = 8
WIDTH = 96
HEADS = 3
LAYERS = 4
LEARNING_RATE = 3e-3
WARMUP = 20
HELD_OUT = 0.1


@dataclass(frozen=True)
class Text:
    """Characters as int64[N] numbers into ``alphabet``, on one device."""

    alphabet: str
    train: torch.Tensor
    held_out: torch.Tensor

    def encode(self, text: str) -> list[int]:
        """Numbers of the characters of ``text``; ``ValueError`` for one not in the alphabet."""
        strangers = set(text) - set(self.alphabet)
        if strangers:
            raise ValueError(f"not in the alphabet: {''.join(sorted(strangers))!r}")
        return [self.alphabet.index(character) for character in text]

    def decode(self, numbers: list[int]) -> str:
        """The inverse of ``encode``."""
        return "".join(self.alphabet[number] for number in numbers)


def load_data(device: str) -> Text:
    """Python's documentation, its last tenth held out, on ``device``."""
    text = "\n".join(topics[name] for name in sorted(topics))
    alphabet = "".join(sorted(set(text)))
    number_of = {character: number for number, character in enumerate(alphabet)}
    numbers = torch.tensor([number_of[character] for character in text])
    split = int(len(numbers) * (1 - HELD_OUT))
    return Text(alphabet, numbers[:split].to(device), numbers[split:].to(device))


class Attention(nn.Module):
    """Causal self-attention over float32[B, T, WIDTH]."""

    def __init__(self) -> None:
        """One projection for query, key and value together, one back."""
        super().__init__()
        self.inward = nn.Linear(WIDTH, 3 * WIDTH)
        self.outward = nn.Linear(WIDTH, WIDTH)

    def heads(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value, each float32[B, HEADS, T, WIDTH // HEADS]."""
        batch, length, _ = x.shape
        heads = self.inward(x).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        return query, key, value

    def joined(self, mixed: torch.Tensor) -> torch.Tensor:
        """What the heads found, float32[B, HEADS, T, WIDTH // HEADS], as float32[B, T, WIDTH]."""
        joined: torch.Tensor = self.outward(mixed.transpose(1, 2).flatten(2))
        return joined

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape out as in."""
        query, key, value = self.heads(x)
        return self.joined(F.scaled_dot_product_attention(query, key, value, is_causal=True))


class Block(nn.Module):
    """A pre-norm transformer layer over float32[B, T, WIDTH]."""

    def __init__(self) -> None:
        """Attention and a GELU network four times as wide inside."""
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.GELU(),
            nn.Linear(4 * WIDTH, WIDTH),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape out as in."""
        x = x + self.attention(self.attention_norm(x))
        summed: torch.Tensor = x + self.mlp(x)
        return summed


class CharGPT(nn.Module):
    """int64[B, T] characters, T at most ``context``, to float32[B, T, alphabet] logits."""

    def __init__(self, alphabet: int, context: int | None = None) -> None:
        """``alphabet`` is the number of distinct characters."""
        super().__init__()
        self.characters = nn.Embedding(alphabet, WIDTH)
        self.places = nn.Parameter(torch.zeros(context or CONTEXT, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, alphabet)
        self.apply(self._initialise)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        """Logits of the character after each place."""
        x = self.characters(characters) + self.places[: characters.shape[1]]
        logits: torch.Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def build_model(device: str, text: Text, seed: int = 0, context: int | None = None) -> CharGPT:
    """The model, its weights drawn on the CPU so that they are the same on every device."""
    torch.manual_seed(seed)
    return CharGPT(len(text.alphabet), context).to(device)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.1)


def build_schedule(
    optimizer: torch.optim.Optimizer, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """Linear warm-up, then half a cosine down to a tenth over ``steps`` steps."""

    def factor(step: int) -> float:
        warm = min(1.0, (step + 1) / WARMUP)
        return warm * (0.55 + 0.45 * math.cos(math.pi * min(step, steps) / steps))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def cut_out(
    text: torch.Tensor, starts: torch.Tensor, context: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Windows of ``text`` at ``starts`` (int64[B]) and the same one character later."""
    places = starts[:, None] + torch.arange((context or CONTEXT) + 1, device=starts.device)
    windows = text[places]
    return windows[:, :-1], windows[:, 1:]


def batches(
    text: Text, seed: int = 0, context: int | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Random windows without end; their places are drawn on the CPU, the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(
            len(text.train) - (context or CONTEXT) - 1, (BATCH,), generator=generator
        )
        yield cut_out(text.train, starts.to(text.train.device), context)


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy, a float32[] in nats a character."""
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """One optimizer step; the loss before it, a detached float32[]."""
    optimizer.zero_grad()
    loss = loss_of(model, inputs, targets)
    loss.backward()
    optimizer.step()
    return loss.detach()


@torch.no_grad()
def held_out_loss(model: nn.Module, text: Text, count: int = 16) -> float:
    """Mean loss over ``count`` fixed minibatches of the held-out text."""
    last = len(text.held_out) - CONTEXT - 1
    starts = torch.linspace(0, last, count * BATCH).long().to(text.held_out.device)
    losses = [
        loss_of(model, *cut_out(text.held_out, chosen)) for chosen in starts.view(count, BATCH)
    ]
    return float(torch.stack(losses).mean())


@torch.no_grad()
def write(model: nn.Module, text: Text, length: int) -> str:
    """Let the model write ``length`` characters after the first held-out window."""
    window = text.held_out[:CONTEXT]
    written = []
    for _ in range(length):
        odds = model(window[None])[0, -1].softmax(dim=0)
        drawn = torch.multinomial(odds, 1)
        window = torch.cat([window[1:], drawn])
        written.append(drawn)
    return text.decode(torch.cat(written).tolist())


def main() -> None:
    """Train, printing the loss now and then, and let the model write a few lines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu or tpu (default: cpu)")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=50, help="steps between two lines")
    options = parser.parse_args()
    text = load_data(options.device)
    model = build_model(options.device, text)
    optimizer = build_optimizer(model)
    schedule = build_schedule(optimizer, options.steps)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {options.device}")
    started, stream = time.perf_counter(), batches(text)
    for step in range(1, options.steps + 1):
        loss = train_step(model, optimizer, *next(stream))
        schedule.step()
        if step % options.every == 0 or step == options.steps:
            value, seconds = loss.item(), time.perf_counter() - started
            print(f"step {step}: loss {value:.4f}, {1e3 * seconds / step:.1f} ms a step")
    print(f"held-out loss {held_out_loss(model, text):.4f}; it writes:")
    print(write(model, text, 200))


if __name__ == "__main__":
    main()
