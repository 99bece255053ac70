"""More than one model, optimizer or pass a step; models whose inputs are lists of indices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from bench.everyday.common import Loop, Step, batches, classes, gpt, mlp, next_token_loss


def gan(device: str) -> Step:
    """A generator and a discriminator, an optimizer each; losses are read every ten steps."""
    torch.manual_seed(0)
    maker = mlp(16, 64, 64, 32).to(device)
    judge = mlp(32, 64, 64, 1, act=nn.LeakyReLU).to(device)
    makes = torch.optim.Adam(maker.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judges = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion, data = nn.BCEWithLogitsLoss(), torch.randn(16, 64, 32)
    noise = torch.Generator().manual_seed(0)
    yes, no = torch.ones(64, 1, device=device), torch.zeros(64, 1, device=device)

    def steps() -> Iterator[torch.Tensor]:
        for number in itertools.count(1):
            fake = maker(torch.randn(64, 16, generator=noise).to(device))
            judges.zero_grad()
            real_loss = criterion(judge(data[number % 16].to(device)), yes)
            judge_loss = real_loss + criterion(judge(fake.detach()), no)
            judge_loss.backward()
            judges.step()
            makes.zero_grad()
            loss = criterion(judge(fake), yes)
            loss.backward()
            makes.step()
            if number % 10 == 0:
                judge_loss.item(), loss.item()
            yield loss.detach()

    return steps().__next__


class Vae(nn.Module):
    """A variational autoencoder of 64 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = mlp(64, 128, 16), mlp(8, 128, 64)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(code), mean, log_variance


def vae(device: str) -> Step:
    """Reconstruction and divergence; the noise is drawn on the device."""
    torch.manual_seed(0)
    model = Vae().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = torch.rand(16, 64, 64)

    def steps() -> Iterator[float]:
        for number in itertools.count(1):
            x = data[number % 16].to(device)
            logits, mean, log_variance = model(x)
            reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
            divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
            loss = (reconstruction + divergence) / len(x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()

    return steps().__next__


def distillation(device: str) -> Step:
    """A student that learns from labels and from a larger teacher."""
    torch.manual_seed(0)
    teacher, student = mlp(64, 256, 256, 10).to(device).eval(), mlp(64, 64, 10).to(device)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    data = batches(*classes(512, 64), size=64)

    def steps() -> Iterator[torch.Tensor]:
        for number in itertools.count(1):
            inputs, labels = (part.to(device) for part in next(data))
            with torch.no_grad():
                wanted = F.softmax(teacher(inputs) / 2, 1)
            logits = student(inputs)
            soft = F.kl_div(F.log_softmax(logits / 2, 1), wanted, reduction="batchmean") * 4
            loss = 0.7 * soft + 0.3 * F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 10 == 0:
                loss.item()
            yield loss.detach()

    return steps().__next__


def gradient_penalty(device: str) -> Step:
    """WGAN-GP: a double backward pass; the generator takes every fifth step."""
    torch.manual_seed(0)
    maker, critic = mlp(16, 64, 64, 32).to(device), mlp(32, 64, 64, 1, act=nn.Tanh).to(device)
    makes = torch.optim.Adam(maker.parameters(), lr=1e-4, betas=(0.0, 0.9))
    judges = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    data, noise = torch.randn(16, 64, 32), torch.Generator().manual_seed(0)

    def penalty(real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
        share = torch.rand(64, 1, generator=noise).to(device)
        between = (share * real + (1 - share) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        return ((slope.norm(2, dim=1) - 1) ** 2).mean()

    def steps() -> Iterator[torch.Tensor]:
        for number in itertools.count(1):
            real = data[number % 16].to(device)
            fake = maker(torch.randn(64, 16, generator=noise).to(device))
            judged = critic(fake.detach()).mean() - critic(real).mean()
            loss = judged + 10 * penalty(real, fake.detach())
            judges.zero_grad()
            loss.backward()
            judges.step()
            if number % 5 == 0:
                makes.zero_grad()
                (-critic(fake).mean()).backward()
                makes.step()
                loss.item()
            yield loss.detach()

    return steps().__next__


class Lora(nn.Module):
    """A frozen linear layer and a trained product of two small matrices beside it."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + F.linear(F.linear(x, self.down), self.up) * 2


def lora(device: str) -> Step:
    """Low-rank adapters in a frozen character model."""
    model = gpt("cpu", length=32).requires_grad_(False)
    for block in model.blocks:
        block.qkv, block.out = Lora(block.qkv), Lora(block.out)
    model = model.to(device)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    data = torch.randint(0, 96, (16, 8, 33))

    def steps() -> Iterator[torch.Tensor]:
        for number in itertools.count(1):
            loss = next_token_loss(model, data[number % 16].to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if number % 10 == 0:
                loss.item()
            yield loss.detach()

    return steps().__next__


def contrastive(device: str) -> Step:
    """InfoNCE of two noisy views by one encoder."""
    torch.manual_seed(0)
    encoder = nn.Sequential(mlp(64, 128, 128), nn.BatchNorm1d(128), nn.ReLU(), mlp(128, 64, 32))
    encoder = encoder.to(device)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
    data, noise = torch.randn(64, 64), torch.Generator().manual_seed(0)

    def step() -> float:
        views = [data + 0.3 * torch.randn(64, 64, generator=noise) for _ in range(2)]
        first, second = (F.normalize(encoder(view.to(device)), dim=1) for view in views)
        logits = first @ second.T / 0.1
        target = torch.arange(64, device=device)
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


class Denoiser(nn.Module):
    """An MLP that is told the time step."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.body = nn.Embedding(50, 32), mlp(34, 128, 128, 2, act=nn.SiLU)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.body(torch.cat([x, self.time(t)], 1))


def diffusion(device: str) -> Step:
    """Denoising in two dimensions; every twenty steps 64 points are sampled in ten steps."""
    torch.manual_seed(0)
    model = Denoiser().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    kept = torch.cumprod(1 - torch.linspace(1e-3, 0.1, 50), 0).to(device)
    data, noise = torch.randn(16, 128, 2), torch.Generator().manual_seed(0)

    @torch.no_grad()
    def sample() -> torch.Tensor:
        x = torch.randn(64, 2, generator=noise).to(device)
        for t in range(45, -1, -5):
            found = model(x, torch.full((64,), t, device=device))
            clean = (x - (1 - kept[t]).sqrt() * found) / kept[t].sqrt()
            before = kept[max(t - 5, 0)]
            x = before.sqrt() * clean + (1 - before).sqrt() * found
        return x.cpu()

    def steps() -> Iterator[torch.Tensor]:
        for number in itertools.count(1):
            x, t = data[number % 16].to(device), torch.randint(0, 50, (128,), generator=noise)
            t, added = t.to(device), torch.randn(128, 2, generator=noise).to(device)
            share = kept[t].unsqueeze(1)
            loss = F.mse_loss(model(share.sqrt() * x + (1 - share).sqrt() * added, t), added)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 20 == 0:
                sample()
            yield loss.detach()

    return steps().__next__


def recommender(device: str) -> Step:
    """Embeddings of users and items, a small MLP, clicks."""
    torch.manual_seed(0)
    tables = nn.ModuleList([nn.Embedding(1000, 16), nn.Embedding(2000, 16)]).to(device)
    head = mlp(32, 64, 1).to(device)
    optimizer = torch.optim.Adam([*tables.parameters(), *head.parameters()], lr=1e-3)
    users, items = torch.randint(0, 1000, (32, 128)), torch.randint(0, 2000, (32, 128))
    clicks = torch.randint(0, 2, (32, 128)).float()

    def steps() -> Iterator[torch.Tensor]:
        for number in itertools.count(1):
            user, item = users[number % 32].to(device), items[number % 32].to(device)
            logits = head(torch.cat([tables[0](user), tables[1](item)], 1)).squeeze(1)
            loss = F.binary_cross_entropy_with_logits(logits, clicks[number % 32].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 10 == 0:
                loss.item()
            yield loss.detach()

    return steps().__next__


LOOPS = (
    Loop("gan", gan, 10),
    Loop("vae", vae, draws=True),
    Loop("distillation", distillation, 10),
    Loop("gradient penalty", gradient_penalty, 5),
    Loop("lora", lora, 10),
    Loop("contrastive", contrastive),
    Loop("diffusion", diffusion, 20),
    Loop("recommender", recommender, 10),
)
