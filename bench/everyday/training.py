"""One model and one optimizer: the ordinary training loops."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from bench.everyday.common import Loop, Step, batches, classes, gpt, mlp, next_token_loss
from bench.programs import Block


def adamw_fused(device: str) -> Step:
    """As transformers' Trainer: a linear schedule, clipping, the loss read every ten steps."""
    model = gpt(device, length=32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    schedule = LambdaLR(optimizer, lambda done: max(0.0, 1 - done / 100_000))
    data = torch.randint(0, 96, (64, 8, 33))

    def steps() -> Iterator[torch.Tensor]:
        total, log = torch.zeros((), device=device), []
        for number in itertools.count(1):
            loss = next_token_loss(model, data[number % 64].to(device))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += loss.detach()
            if number % 10 == 0:
                log.append((total.item() / 10, schedule.get_last_lr()[0]))
                total -= total
            yield loss.detach()

    return steps().__next__


def varying_lengths(device: str) -> Step:
    """Batches of sequences of 24 to 64 tokens, each batch of another length."""
    model = gpt(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    lengths = torch.randint(24, 65, (40,)).tolist()
    data = [torch.randint(0, 96, (4, length)) for length in lengths]

    def steps() -> Iterator[torch.Tensor]:
        for number in itertools.count(1):
            loss = next_token_loss(model, data[number % 40].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 10 == 0:
                loss.item()
            yield loss.detach()

    return steps().__next__


def adamw_foreach(device: str) -> Step:
    """AdamW(foreach=True) with a cosine schedule; the loss is read every step."""
    torch.manual_seed(0)
    model = mlp(32, 64, 64, 64, 10, act=nn.GELU).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    schedule = CosineAnnealingLR(optimizer, 1000)
    x, y = (part.to(device) for part in classes(512, 32))
    data = batches(x, y, size=32)

    def step() -> float:
        inputs, labels = next(data)
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.item()

    return step


def clipping(device: str) -> Step:
    """SGD with momentum and clipped gradients; the norm is read every ten steps."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(32, 2, False) for _ in range(2)), nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data, labels = torch.randn(512, 12, 32).to(device), torch.randint(0, 4, (512,)).to(device)
    chosen = torch.Generator().manual_seed(0)

    def steps() -> Iterator[torch.Tensor]:
        for number in itertools.count(1):
            at = torch.randint(0, 512, (16,), generator=chosen).to(device)
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(data[at]).mean(1), labels[at])
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            if number % 10 == 0:
                norm.item()
            yield loss.detach()

    return steps().__next__


def accumulation(device: str) -> Step:
    """Four micro-batches an update; their mean loss is read."""
    torch.manual_seed(0)
    model = mlp(64, 128, 128, 10).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = batches(*classes(1024, 64), size=16)

    def step() -> float:
        total = 0.0
        for _ in range(4):
            inputs, labels = next(data)
            loss = F.cross_entropy(model(inputs.to(device)), labels.to(device)) / 4
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


def autocast(device: str) -> Step:
    """Autocast in bfloat16."""
    model = gpt(device, length=32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text, chosen = torch.randint(0, 96, (10_000,)), torch.Generator().manual_seed(0)

    def step() -> float:
        places = torch.randint(0, 9_967, (8,), generator=chosen).tolist()
        tokens = torch.stack([text[at : at + 33] for at in places]).to(device)
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = next_token_loss(model, tokens)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def ema(device: str) -> Step:
    """A moving average of the weights after every update."""
    torch.manual_seed(0)
    model = mlp(64, 128, 128, 128, 10, act=nn.SiLU).to(device)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = batches(*classes(512, 64), size=32)

    def steps() -> Iterator[torch.Tensor]:
        for number in itertools.count(1):
            inputs, labels = next(data)
            loss = F.cross_entropy(model(inputs.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for kept, now in zip(average.parameters(), model.parameters(), strict=True):
                    kept.mul_(0.999).add_(now, alpha=0.001)
            if number % 10 == 0:
                loss.item()
            yield loss.detach()

    return steps().__next__


def last_batch(device: str) -> Step:
    """Epochs over a DataLoader whose last batch is smaller."""
    torch.manual_seed(0)
    model = mlp(32, 96, 96, 10).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(TensorDataset(*classes(200, 32)), 32, shuffle=True, generator=order)

    def steps() -> Iterator[torch.Tensor]:
        while True:
            total = 0.0
            for inputs, labels in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(inputs.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
                total += loss.item() * len(inputs)
                yield loss.detach()

    return steps().__next__


def dropout(device: str) -> Step:
    """PyTorch's own encoder layers with dropout."""
    torch.manual_seed(0)
    layers = [
        nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True) for _ in range(2)
    ]
    model = nn.Sequential(*layers).to(device)
    head = nn.Linear(64, 4).to(device)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-4)
    data = batches(torch.randn(256, 16, 64), torch.randint(0, 4, (256,)), size=8)

    def step() -> float:
        x, y = (part.to(device) for part in next(data))
        loss = F.cross_entropy(head(model(x).mean(1)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def sgd_mlp(device: str) -> Step:
    """Plain SGD on a small MLP; the loss is read every step."""
    torch.manual_seed(0)
    model = mlp(128, 256, 128, 10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = (part.to(device) for part in classes(1024, 128))
    data = batches(x, y, size=64)

    def step() -> float:
        inputs, labels = next(data)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def convnet(device: str) -> Step:
    """Two convolutions with batch normalisation; the batch moves to the device every step."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    images, labels = torch.randn(8, 32, 1, 16, 16), torch.randint(0, 10, (8, 32))

    def steps() -> Iterator[torch.Tensor]:
        for number in itertools.count(1):
            x, y = images[number % 8].to(device), labels[number % 8].to(device)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 10 == 0:
                loss.item()
            yield loss.detach()

    return steps().__next__


def unrolled(device: str) -> Step:
    """An LSTM cell and a GRU cell over 16 time steps, by hand."""
    torch.manual_seed(0)
    lstm, gru = nn.LSTMCell(16, 32).to(device), nn.GRUCell(32, 32).to(device)
    head = nn.Linear(32, 1).to(device)
    parts = [*lstm.parameters(), *gru.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parts, lr=1e-3)
    data = batches(torch.randn(256, 16, 16), torch.randn(256, 1), size=8)

    def step() -> float:
        x, y = (part.to(device) for part in next(data))
        h, c, g = (torch.zeros(8, 32, device=device) for _ in range(3))
        for now in x.unbind(1):
            h, c = lstm(now, (h, c))
            g = gru(h, g)
        loss = F.mse_loss(head(g), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def checkpointing(device: str) -> Step:
    """Blocks whose activations are computed again in the backward pass."""
    torch.manual_seed(0)
    blocks = nn.ModuleList(Block(64, 4, False) for _ in range(3)).to(device)
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-4)
    data = batches(torch.randn(256, 24, 64), torch.randn(256, 24, 64), size=8)

    def step() -> float:
        h, y = (part.to(device) for part in next(data))
        for block in blocks:
            h = checkpoint(block, h, use_reentrant=False)
        loss = F.mse_loss(h, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


LOOPS = (
    Loop("adamw fused", adamw_fused, 10),
    Loop("varying lengths", varying_lengths, 40),
    Loop("adamw foreach", adamw_foreach, 16),
    Loop("clipping", clipping, 10),
    Loop("accumulation", accumulation),
    Loop("autocast", autocast),
    Loop("ema", ema, 10),
    Loop("last batch", last_batch, 7),
    Loop("dropout", dropout, draws=True),
    Loop("sgd mlp", sgd_mlp),
    Loop("convnet", convnet, 10),
    Loop("unrolled", unrolled),
    Loop("checkpointing", checkpointing),
)
