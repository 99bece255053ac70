"""Products of a step, counted from what is recorded, beside PyTorch's own counter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import fuse
from fuse.aot.flops import of_products
from fuse.distributed import joined


def counted(make: Callable[[str], Callable[[], object]]) -> int:
    """In a fake run, of its third step."""
    with fuse.fake():
        step = make("tpu")
        step()
        return of_products(joined.capture(step).program.nodes)


def linear(device: str) -> Callable[[], object]:
    with torch.device(device):
        model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))
        x = torch.randn(16, 8)
    return lambda: model(x).sum().backward()


def convolution(device: str) -> Callable[[], object]:
    with torch.device(device):
        model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 3))
        x = torch.randn(2, 3, 8, 8)
    return lambda: model(x).sum().backward()


def batched(device: str) -> Callable[[], object]:
    x = torch.randn(3, 4, 5, device=device, requires_grad=True)
    return lambda: torch.bmm(x, x.mT).sum().backward()


@pytest.mark.parametrize("make", [linear, convolution, batched])
def test_products_are_what_pytorch_counts(make: Callable[[str], Callable[[], object]]) -> None:
    counter = FlopCounterMode(display=False)
    with counter:
        make("cpu")()
    assert counted(make) == counter.get_total_flops() > 0


@pytest.mark.parametrize(("causal", "share"), [(False, 1), (True, 2)])
def test_attention_is_two_products_and_four_backward(causal: bool, share: int) -> None:
    def make(device: str) -> Callable[[], object]:
        q, k, v = (torch.randn(2, 4, 16, 8, device=device, requires_grad=True) for _ in range(3))
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal).sum().backward()

    product = 2 * (2 * 4 * 16 * 8) * 16
    assert counted(make) == 6 * product // share
