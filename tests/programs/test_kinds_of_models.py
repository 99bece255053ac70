"""What models of libraries do and devices of other makers were wrong about: a test of each kind."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.harness import compare_with_cpu

pytestmark = pytest.mark.usefixtures("mode")

Pool = Callable[[torch.Tensor], torch.Tensor]


def with_gradient(compute: Pool, *shape: int) -> Any:
    """A program: the result for a random input, and the gradient of its weighted sum."""

    def program(device: torch.device) -> list[torch.Tensor]:
        x = torch.randn(*shape).to(device).requires_grad_()
        y = compute(x)
        (y * torch.randn(y.shape).to(device)).sum().backward()
        assert x.grad is not None
        return [y, x.grad]

    return program


@pytest.mark.parametrize("compute", ["matmul", "conv1d", "einsum", "sdpa"])
def test_float32_has_its_precision(compute: str):
    """Products whose sums almost cancel: one in bfloat16 or TF32 has no digit right."""

    def program(device: torch.device) -> torch.Tensor:
        a = torch.randn(4, 8, 64).to(device)
        b = a + 1e-3 * torch.randn(4, 8, 64).to(device)
        weight = torch.randn(8, 8, 1).to(device)
        results = {
            "matmul": lambda: a @ b.mT - b @ b.mT,
            "conv1d": lambda: F.conv1d(a, weight) - F.conv1d(b, weight),
            "einsum": lambda: (
                torch.einsum("bik,bjk->bij", a, b) - torch.einsum("bik,bjk->bij", b, b)
            ),
            "sdpa": lambda: (
                F.scaled_dot_product_attention(a, b, a) - F.scaled_dot_product_attention(b, b, a)
            ),
        }
        return results[compute]()

    compare_with_cpu(program, rtol=1e-2, atol=1e-4)


def test_cholesky_ex_with_its_gradient():
    """As gpytorch and samplers call it: factor, what failed, and the gradient."""

    def program(device: torch.device) -> list[torch.Tensor]:
        root = torch.randn(3, 4, 4).to(device).requires_grad_()
        matrix = root @ root.mT + torch.eye(4).to(device)
        factor, info = torch.linalg.cholesky_ex(matrix)
        factor.square().sum().backward()
        bad = torch.linalg.cholesky_ex(-torch.eye(4).to(device)).info
        assert root.grad is not None
        return [factor, info, root.grad, bad]

    compare_with_cpu(program, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("written_out", [False, True])
def test_a_mask_with_a_gradient(written_out: bool):
    """A bias that is learned, added to scores, alone and beside a mask of booleans."""

    def program(device: torch.device) -> list[Any]:
        q, k, v = (torch.randn(2, 2, 5, 4).to(device).requires_grad_() for _ in range(3))
        bias = torch.randn(1, 2, 5, 5).to(device).requires_grad_()
        mask = bias.masked_fill(torch.ones(5, 5).triu(1).bool().to(device), -torch.inf)
        if written_out:
            y = torch.softmax(q @ k.mT / 2 + mask, -1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        y.square().sum().backward()
        return [y, q.grad, k.grad, v.grad, bias.grad]

    compare_with_cpu(program)


@pytest.mark.parametrize("kind", [int, bool, float, torch.int8, torch.uint8, torch.int32])
def test_to_a_type_of_python_or_fewer_bits(kind: Any):
    """`.to(int)` cuts towards zero, `.to(bool)` asks whether it is not zero."""

    def program(device: torch.device) -> list[torch.Tensor]:
        numbers = torch.tensor([-2.5, -1.0, -0.5, 0.0, 0.5, 1.5, 100.7])
        x = numbers.abs().to(device) if kind is torch.uint8 else numbers.to(device)
        return [x.to(kind), x.to(torch.bfloat16).to(kind), (x * 1).to(kind).to(torch.float32)]

    compare_with_cpu(program)


def test_weights_stay_tied_wherever_they_move():
    """By `.to(device)`, `.to(dtype)`, a copy, and a state that is loaded; gradients add up."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(7, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.head(self.embedding(tokens))
            return result

    def program(device: torch.device) -> list[Any]:
        model = Tied().to(device)
        other = copy.deepcopy(model).to(torch.float64)
        other.load_state_dict(model.state_dict())
        for one in (model, other):
            assert one.head.weight is one.embedding.weight
            one(torch.arange(5).to(device)).square().sum().backward()
        return [model.head.weight.grad, other.embedding.weight.grad]

    compare_with_cpu(program)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: F.avg_pool1d(x, 3, 2),
        lambda x: F.avg_pool1d(x, 4, 4, ceil_mode=True),
        lambda x: F.avg_pool1d(x, 5, 1, padding=2, count_include_pad=False),
        lambda x: F.adaptive_avg_pool1d(x, 3),
        lambda x: F.adaptive_max_pool1d(x, 3),
        lambda x: F.lp_pool1d(x, 2.0, 3),
    ],
    ids=["strided", "ceil", "padded", "adaptive", "adaptive max", "norm"],
)
def test_pools_of_one_dimension_with_gradients(compute: Pool):
    compare_with_cpu(with_gradient(compute, 2, 3, 10))


@pytest.mark.parametrize("kind", ["boolean", "infinite", "least"])
def test_rows_of_attention_that_a_mask_empties(kind: str):
    """As padding on the left makes them: what PyTorch says of them, and no NaN in others."""

    def program(device: torch.device) -> list[Any]:
        q, k, v = (torch.randn(2, 2, 4, 4).to(device).requires_grad_() for _ in range(3))
        allowed = torch.ones(2, 1, 4, 4, dtype=torch.bool).tril()
        allowed[1, :, :, :2] = False
        least = torch.finfo(torch.float32).min if kind == "least" else -torch.inf
        mask = allowed if kind == "boolean" else torch.zeros(()).where(allowed, least)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(device))
        (y[:, :, 2:] ** 2).sum().backward()
        return [y, q.grad, k.grad, v.grad]

    compare_with_cpu(program)


@pytest.mark.parametrize("how", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(3, 4), (13, 9)], ids=["smaller", "larger"])
def test_antialiased_upsampling_with_its_gradient(how: str, size: tuple[int, int]):
    compare_with_cpu(
        with_gradient(lambda x: F.interpolate(x, size, mode=how, antialias=True), 2, 3, 8, 7)
    )


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("dim", [0, 2, None])
@pytest.mark.parametrize("old", [False, True])
def test_weight_norm_of_a_convolution(dim: int | None, old: bool):
    """Over each dimension, as speech models have it, by a parametrisation and by a hook."""

    def program(device: torch.device) -> list[Any]:
        norm: Any = nn.utils.weight_norm if old else nn.utils.parametrizations.weight_norm
        model = norm(nn.Conv1d(4, 4, 3, padding=1, groups=2), name="weight", dim=dim).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            y = model(torch.randn(2, 4, 6).to(device))
            y.square().mean().backward()
            optimizer.step()
        return [y, *model.state_dict().values()]

    compare_with_cpu(program, rtol=1e-3)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "asked", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
)
def test_each_mode_of_torch_compile(asked: str):
    def program(device: torch.device) -> list[Any]:
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).to(device)
        compiled = torch.compile(model, mode=asked) if device.type == "tpu" else model
        y = compiled(torch.randn(3, 4).to(device))
        y.square().mean().backward()
        return [y, *(one.grad for one in model.parameters())]

    compare_with_cpu(program)
