"""Convolutions, normalisation and pooling, in training and in evaluation."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.programs.harness import compare_with_cpu, train

pytestmark = pytest.mark.usefixtures("mode")


def cross_entropy(model, x, y):
    return F.cross_entropy(model(x), y)


def test_batch_norm_trains_and_then_evaluates():
    """The running statistics move in training and stay in evaluation."""

    def program(device):
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 5),
        ).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        x = torch.randn(6, 1, 8, 8).to(device)
        y = torch.randint(5, (6,)).to(device)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = cross_entropy(model, x, y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            first, second = model(x), model(x)
        return losses, first, second, dict(model.state_dict())

    compare_with_cpu(program, runs=2)


def test_a_residual_block_with_strides_and_groups():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide = nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False)
            self.depth = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8)
            self.skip = nn.Conv2d(4, 8, 1, stride=2)
            self.norm = nn.GroupNorm(2, 8)

        def forward(self, x):
            y = F.silu(self.norm(self.depth(self.wide(x))))
            return F.adaptive_avg_pool2d(y + self.skip(x), 1).flatten(1)

    def program(device):
        x, y = torch.randn(2, 4, 8, 8), torch.randint(8, (2,))
        return train(Block(), (x, y), cross_entropy, device)

    compare_with_cpu(program, runs=2)


def test_one_dimension_and_transposed():
    def program(device):
        model = nn.Sequential(
            nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ConvTranspose1d(4, 2, 3, stride=2), nn.Tanh()
        )
        x = torch.randn(3, 2, 9)
        return train(model, (x,), lambda m, x: m(x).square().mean(), device)

    compare_with_cpu(program, runs=2)


def test_layer_norm_and_instance_norm():
    def program(device):
        model = nn.Sequential(nn.InstanceNorm1d(3, affine=True), nn.Linear(5, 4), nn.LayerNorm(4))
        x = torch.randn(2, 3, 5)
        return train(model, (x,), lambda m, x: (m(x) ** 3).mean(), device)

    compare_with_cpu(program, runs=2)


def test_channels_last():
    def program(device):
        model = nn.Conv2d(3, 4, 3).to(device, memory_format=torch.channels_last)
        x = torch.randn(2, 3, 6, 6).to(device).contiguous(memory_format=torch.channels_last)
        y = model(x.requires_grad_())
        y.square().mean().backward()
        return y, x.grad, model.weight.grad, x.is_contiguous(memory_format=torch.channels_last)

    compare_with_cpu(program)
