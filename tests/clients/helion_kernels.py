"""Kernels in Helion's language, of the kinds of its own first examples, with PyTorch's functions.

Helion reads their sources, and each line of one is compiled: they hold no helpers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import helion
import helion.language as hl
import torch

from tests.clients.steps import normal


@helion.kernel
def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + y[tile]
    return out


@helion.kernel
def scaled_(x: torch.Tensor, y: torch.Tensor) -> None:
    """It overwrites its first argument."""
    for tile in hl.tile(x.size()):
        x[tile] = x[tile] * y[tile]


@helion.kernel
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], dim=1)
    return out


@helion.kernel
def running_softmax(x: torch.Tensor) -> torch.Tensor:
    """A row's maximum and sum are found a tile of columns at a time."""
    height, width = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(height):
        top = hl.full([rows], float("-inf"), dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        for columns in hl.tile(width):
            block = x[rows, columns]
            new = torch.maximum(top, torch.amax(block, dim=1))
            total = total * torch.exp(top - new) + torch.exp(block - new[:, None]).sum(dim=1)
            top = new
        for columns in hl.tile(width):
            out[rows, columns] = torch.exp(x[rows, columns] - top[:, None]) / total[:, None]
    return out


@helion.kernel(static_shapes=True)
def matmul(
    x: torch.Tensor, y: torch.Tensor, after: Callable[..., torch.Tensor] = lambda sums, tile: sums
) -> torch.Tensor:
    height, depth = x.size()
    width = y.size(1)
    out = torch.empty([height, width], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([height, width]):
        sums = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(depth):
            sums = torch.addmm(sums, x[rows, inner], y[inner, columns])
        out[rows, columns] = after(sums, (rows, columns))
    return out


def linear_relu(x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The product, with what follows it in the same kernel."""
    return matmul(x, y, lambda sums, tile: torch.relu(sums + bias[tile[1]]))


@helion.kernel(static_shapes=True)
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Of ``[heads, tokens, width]``, with the softmax found a tile of keys at a time."""
    queries, width = q.size(1), hl.specialize(q.size(2))
    scale = 1.0 / math.sqrt(width)
    out = torch.empty_like(q)
    for heads, rows in hl.tile([q.size(0), queries]):
        top = hl.full([heads, rows], float("-inf"), dtype=torch.float32)
        total = hl.zeros([heads, rows], dtype=torch.float32)
        sums = hl.zeros([heads, rows, width], dtype=torch.float32)
        asked = q[heads, rows, :] * scale
        for keys in hl.tile(k.size(1)):
            scores = torch.bmm(asked, k[heads, keys, :].transpose(1, 2), torch.float32)
            new = torch.maximum(top, torch.amax(scores, -1))
            weights = torch.exp(scores - new[:, :, None])
            decay = torch.exp(top - new)
            total = total * decay + torch.sum(weights, -1)
            values = v[heads, keys, :]
            sums = torch.baddbmm(sums * decay[:, :, None], weights.to(values.dtype), values)
            top = new
        out[heads, rows, :] = (sums / total[:, :, None]).to(out.dtype)
    return out


def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``scaled_`` on a copy."""
    x = x.clone()
    scaled_(x, y)
    return x


@dataclass(frozen=True)
class Known:
    """A kernel, the function of PyTorch that it is, and arguments of the host."""

    kernel: Callable[..., Any]
    wanted: Callable[..., torch.Tensor]
    arguments: tuple[torch.Tensor, ...]


SQUARE: Final = (normal(256, 256), normal(256, 256, seed=2))
HEADS: Final = tuple(normal(4, 128, 64, seed=seed) for seed in range(3))
KERNELS: Final = {
    "add": Known(added, torch.add, SQUARE),
    "multiply, in place": Known(scaled, torch.mul, SQUARE),
    "softmax": Known(softmax, lambda x: torch.softmax(x, 1), SQUARE[:1]),
    "softmax, in two passes": Known(running_softmax, lambda x: torch.softmax(x, 1), SQUARE[:1]),
    "matmul": Known(matmul, torch.matmul, SQUARE),
    "matmul, bfloat16": Known(matmul, torch.matmul, tuple(one.bfloat16() for one in SQUARE)),
    "matmul, bias and relu": Known(
        linear_relu, lambda x, y, b: torch.relu(x @ y + b), (*SQUARE, normal(256, seed=3))
    ),
    "attention": Known(attention, torch.nn.functional.scaled_dot_product_attention, HEADS),
}
