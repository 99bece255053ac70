"""A small convolutional net on scikit-learn's handwritten digits, in plain PyTorch.

    python examples/digits.py --device tpu

Nothing here knows of any particular device: ``--device`` is the only difference between
a run on the CPU and one on the ``tpu`` device.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F

TRAINING_IMAGES = 1437
BATCH = 32
LEARNING_RATE = 3e-3


@dataclass(frozen=True)
class Digits:
    """8x8 images as float32[N, 1, 8, 8] in 0..1 and labels as int64[N], on one device."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor


def load_data(device: str) -> Digits:
    """The 1,797 digits, split 80 to 20 by class with a fixed seed, on ``device``."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        images.reshape(-1, 1, 8, 8) / 16, labels, test_size=0.2, random_state=0, stratify=labels
    )
    train_images, test_images = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    train_labels, test_labels = (torch.tensor(part, dtype=torch.int64) for part in parts[2:])
    tensors = (train_images, train_labels, test_images, test_labels)
    return Digits(*(tensor.to(device) for tensor in tensors))


def build_model(device: str, seed: int = 0) -> nn.Module:
    """The net, its weights drawn on the CPU so that they are the same on every device."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        nn.MaxPool2d(2),
        *(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        nn.MaxPool2d(2),
        *(nn.Flatten(), nn.Dropout(0.25), nn.Linear(32 * 2 * 2, 10)),
    )
    return model.to(device)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Adam over every parameter."""
    return torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)


def batches(data: Digits, seed: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Minibatches without end, shuffled anew each epoch; an epoch's short last one is left out.

    The order is drawn on the CPU, so that every device sees the same one.
    """
    generator = torch.Generator().manual_seed(seed)
    count = len(data.train_labels)
    while True:
        order = torch.randperm(count, generator=generator).to(data.train_labels.device)
        for start in range(0, count - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            yield data.train_images[chosen], data.train_labels[chosen]


def steps_per_epoch(data: Digits) -> int:
    """Whole minibatches in the training set."""
    return len(data.train_labels) // BATCH


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """One optimizer step; the loss before it, a detached float32[]."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


@torch.no_grad()
def accuracy(model: nn.Module, data: Digits) -> float:
    """The share of test images the model names right, 0 to 1; leaves the model training."""
    model.eval()
    named = model(data.test_images).argmax(dim=1)
    model.train()
    return float((named == data.test_labels).float().mean())


def main() -> None:
    """Train, printing one line an epoch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu or tpu (default: cpu)")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    data = load_data(options.device)
    model = build_model(options.device)
    optimizer = build_optimizer(model)
    stream = batches(data)
    for epoch in range(1, options.epochs + 1):
        started = time.perf_counter()
        losses = [train_step(model, optimizer, *next(stream)) for _ in range(steps_per_epoch(data))]
        loss = torch.stack(losses).mean().item()
        seconds = time.perf_counter() - started
        print(
            f"epoch {epoch}: loss {loss:.4f}, test accuracy {accuracy(model, data):.1%}, "
            f"{1e3 * seconds / len(losses):.1f} ms a step"
        )


if __name__ == "__main__":
    main()
