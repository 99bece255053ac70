"""Operations on independent samples that are one call of PyTorch's CPU kernels, share by share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fuse.backends.base import Chunk
from fuse.backends.xla.backend import create
from fuse.backends.xla.cpu import fused_regions
from fuse.backends.xla.cpu.fused_regions import FusedRegion, find_regions
from tests.device.helpers import DEVICE, compile_anew, mode, recorder

CPU = torch.device("cpu")
CORES = os.cpu_count() or 1
BATCH = 2 * CORES
pytestmark = pytest.mark.skipif(
    create().platform.name != "cpu", reason="other platforms run kernels side by side"
)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FusedRegion]]:
    """The fused regions of what is compiled from now on."""
    noted: list[FusedRegion] = []

    def note(chunk: Chunk, apart: set[int]) -> list[FusedRegion]:
        made = find_regions(chunk, apart)
        noted.extend(made)
        return made

    monkeypatch.setattr(fused_regions, "find_regions", note)
    compile_anew(monkeypatch)
    with recorder():
        yield noted


def kernels(found: list[FusedRegion]) -> list[list[str]]:
    return [[op.kernel.name.lower().replace("_", " ") for op in one.ops] for one in found]


class Block(nn.Module):
    """A transformer block; ``width`` 128 in four heads."""

    def __init__(self, causal: bool = False, bias: bool = True, act: Callable = F.gelu) -> None:
        super().__init__()
        width = 128
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width, bias=bias)
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.up, self.down = nn.Linear(width, 512, bias=bias), nn.Linear(512, width, bias=bias)
        self.causal, self.act = causal, act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, 4, -1).transpose(1, 2)
            for part in self.qkv(self.first(x)).split(width, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(self.act(self.up(self.second(x))))


def same(module: nn.Module, x: torch.Tensor, train: bool = False, tolerance: float = 2e-5) -> None:
    """What the device makes of ``x``, three times, against the CPU: gradients too in training."""

    def run(device: torch.device) -> list[torch.Tensor]:
        own = module.to(device)
        own.zero_grad()
        given = x.clone().to(device).requires_grad_(train)
        with torch.set_grad_enabled(train):
            out = own(given)
            if train:
                out.square().mean().backward()
        values = [out.detach(), *(value.grad for value in own.parameters() if train)]
        values += [given.grad] if train else []
        return [value.cpu().clone() for value in values]

    expected = run(CPU)
    for _ in range(3):
        for value, wanted in zip(run(DEVICE), expected, strict=True):
            torch.testing.assert_close(value, wanted, rtol=tolerance, atol=tolerance)
    module.to(CPU)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


BLOCK = [
    "layer norm", "biased product", "attention", "biased product", "add",
    "layer norm", "biased product", "gelu", "biased product", "add",
]  # fmt: skip


@pytest.mark.parametrize("causal", [False, True])
def test_inference_of_blocks_is_one_region(found: list[FusedRegion], causal: bool):
    torch.manual_seed(0)
    same(nn.Sequential(Block(causal), Block(causal)), numbers(BATCH, 64, 128))
    assert kernels(found) == [BLOCK + BLOCK]
    assert found[0].samples == BATCH


@pytest.mark.parametrize("causal", [False, True])
def test_training_keeps_what_the_backward_pass_reads(found: list[FusedRegion], causal: bool):
    torch.manual_seed(0)
    same(Block(causal), numbers(BATCH, 64, 128), train=True)
    assert kernels(found)[0][: len(BLOCK)] == BLOCK


@pytest.mark.parametrize(
    ("act", "name"),
    [
        (F.relu, "relu"),
        (F.silu, "silu"),
        (lambda x: F.gelu(x, approximate="tanh"), "gelu"),
        (lambda x: x * x, "multiply"),
        (torch.relu_, "relu"),
    ],
    ids=["relu", "silu", "gelu by tanh", "square", "relu in place"],
)
def test_what_lies_between_is_part_of_it(found: list[FusedRegion], act: Callable, name: str):
    torch.manual_seed(0)
    same(Block(bias=False, act=act), numbers(BATCH, 64, 128))
    assert kernels(found) == [[
        "layer norm", "product", "attention", "product", "add",
        "layer norm", "product", name, "product", "add",
    ]]  # fmt: skip


def test_a_norm_without_weights(found: list[FusedRegion]):
    torch.manual_seed(0)
    layers = [nn.Linear(128, 128), nn.LayerNorm(128, elementwise_affine=False), nn.Linear(128, 128)]
    same(nn.Sequential(*layers), numbers(512 * CORES, 128))
    assert kernels(found) == [["biased product", "layer norm", "biased product"]]


def test_nan_and_infinity_pass(found: list[FusedRegion]):
    torch.manual_seed(0)
    x = numbers(256 * CORES, 128)
    x[0, 0], x[1, 1], x[2, 2] = float("nan"), float("inf"), -float("inf")
    module = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 128), nn.Linear(128, 64))

    def run(device: torch.device) -> torch.Tensor:
        with torch.no_grad():
            return module.to(device)(x.to(device)).cpu()

    expected = run(CPU)
    torch.testing.assert_close(run(DEVICE), expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert kernels(found) == [["biased product", "relu", "biased product", "biased product"]]


def test_one_sample_is_split_by_rows_around_attention(found: list[FusedRegion]):
    torch.manual_seed(0)
    same(nn.Sequential(Block(), Block()), numbers(1, 256 * CORES, 128))
    assert kernels(found) == [[*BLOCK[3:], *BLOCK[:2]], BLOCK[3:]]
    assert [one.samples for one in found] == [256 * CORES] * 2


def test_a_batch_that_cannot_be_split_evenly(found: list[FusedRegion]):
    torch.manual_seed(0)
    length = 256 * CORES
    same(nn.Sequential(Block(), Block()), numbers(2 * CORES - 1, length, 128))
    assert all("attention" not in names for names in kernels(found))
    assert all(one.samples == (2 * CORES - 1) * length for one in found)


class AllSamples(nn.Module):
    """Products with what other samples are needed for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.layers[1](self.layers[0](x))
        b = self.layers[2](a - a.mean(0))  # reads what lies beyond the first region
        c = a @ b.t()  # a right operand that a region makes
        return c @ self.layers[3](b)


def test_what_needs_all_samples_ends_a_region(found: list[FusedRegion]):
    torch.manual_seed(0)
    same(AllSamples(), numbers(256 * CORES, 128), tolerance=1e-3)
    for region in found:
        made = {part.value for op in region.ops for part in op.results}
        assert all(op.whole().isdisjoint(made) for op in region.ops)


class Beside(nn.Module):
    """Others read values of the region, some make what it goes on with, and it overwrites."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.layers[0](x)
        aside = one.cumsum(0)
        two = self.layers[1](one)
        two += one
        three = self.layers[2](two)
        late = self.layers[3](three + torch.cos(x))
        back = self.layers[4](aside)
        return self.layers[6](self.layers[5](late + back)) * two


def test_operations_beside_a_region(found: list[FusedRegion]):
    torch.manual_seed(0)
    same(Beside(), numbers(256 * CORES, 128), tolerance=1e-4)
    assert kernels(found) == [
        ["biased product", "biased product", "add", "biased product", "add", "biased product"],
        ["biased product", "add", "biased product", "biased product", "multiply"],
    ]


class Grown(nn.Module):
    """A weight that reaches past what its memory held, which reads as zeros there."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = torch.ones(64, 128, device=x.device).resize_(128, 128)
        if x.is_cpu:
            weight[64:] = 0  # PyTorch's CPU leaves there what was in the memory
        for layer in self.layers:
            x = layer(x)
        return x @ weight.t()


def test_a_weight_whose_storage_has_grown(found: list[FusedRegion]):
    torch.manual_seed(0)
    same(Grown(), numbers(256 * CORES, 128), tolerance=1e-4)
    assert kernels(found) == [["biased product"] * 3]


def test_small_work_and_strict_mode_have_no_regions(found: list[FusedRegion]):
    torch.manual_seed(0)
    same(Block(), numbers(BATCH, 4, 128))
    assert found == []
    with mode("strict"):
        same(Block(), numbers(BATCH, 64, 128))
    assert found == []


def test_shapes_and_masks_that_are_in_no_region(found: list[FusedRegion]):
    """Grouped heads under a mask: PyTorch's numbers all the same."""
    torch.manual_seed(0)

    class Masked(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, length, width = x.shape
            q, k, v = (
                part.reshape(batch, length, 4, -1).transpose(1, 2)
                for part in self.qkv(self.first(x)).split(width, 2)
            )
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril(3)
            y = F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], mask, enable_gqa=True)
            return x + self.out(y.transpose(1, 2).reshape(batch, length, width))

    same(nn.Sequential(Masked(), Block()), numbers(BATCH, 128, 128))
    assert all(names.count("attention") <= 1 for names in kernels(found))
