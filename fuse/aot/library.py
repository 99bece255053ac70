"""The standard operations of ``fuse aot --library``: each called as Strict Eager calls it.

What a pack of them holds is what a program asks for that runs one operation at a time: in strict
mode, or where a trace is one call between two reads. A fused program's chunks are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import torch
import torch.nn.functional as F

Entry = tuple[str, Callable[[], object]]

DTYPES: Final = (torch.float32, torch.bfloat16)
ROWS: Final = (128, 1024)
WIDTHS: Final = (256, 512, 1024)
HEADS: Final = ((4, 128), (8, 64))
"""Numbers of heads, and their width."""
LENGTHS: Final = (128, 512)
UNARY: Final = (
    torch.exp, torch.log, torch.sqrt, torch.rsqrt, torch.tanh, torch.sigmoid, torch.relu,
    torch.abs, torch.neg, torch.square, F.gelu, F.silu,
)  # fmt: skip
BINARY: Final = (torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum)
REDUCTIONS: Final = (torch.sum, torch.mean, torch.amax, torch.amin, torch.argmax)


def entries(device: str) -> Iterator[Entry]:
    """Each operation's name with shape and dtype, and a call of it on ``device``."""
    for dtype in DTYPES:
        for make in (products, attention, norms, elementwise, reductions):
            yield from make(device, dtype)


def _named(function: Callable[..., object], *operands: torch.Tensor) -> str:
    shapes = ", ".join(
        f"{str(one.dtype).removeprefix('torch.')}{list(one.shape)}" for one in operands
    )
    return f"{function.__name__}({shapes})"


def _entry(
    function: Callable[..., object], *operands: torch.Tensor, options: dict[str, object]
) -> Entry:
    return _named(function, *operands), lambda: function(*operands, **options)


def products(device: str, dtype: torch.dtype) -> Iterator[Entry]:
    """Linear layers and plain products of rows: ``x W``, and the gradients of both factors."""
    for rows in ROWS:
        for width in WIDTHS:
            for out in (width, 4 * width):
                x, grad = (torch.ones(rows, n, dtype=dtype).to(device) for n in (width, out))
                weight = torch.ones(out, width, dtype=dtype).to(device)
                bias = torch.ones(out, dtype=dtype).to(device)
                yield _entry(F.linear, x, weight, bias, options={})
                yield _entry(F.linear, x, weight, options={})
                yield _entry(torch.mm, grad, weight, options={})
                yield _entry(torch.mm, grad.t(), x, options={})


def attention(device: str, dtype: torch.dtype) -> Iterator[Entry]:
    """Scaled dot-product attention with and without a causal mask."""
    for heads, width in HEADS:
        for length in LENGTHS:
            q, k, v = (
                torch.ones(4, heads, length, width, dtype=dtype).to(device) for _ in range(3)
            )
            for causal in (False, True):
                yield _entry(F.scaled_dot_product_attention, q, k, v, options={"is_causal": causal})


def norms(device: str, dtype: torch.dtype) -> Iterator[Entry]:
    """Layer norms, root mean square norms and softmax over the last dimension."""
    for rows in ROWS:
        for width in WIDTHS:
            x = torch.ones(rows, width, dtype=dtype).to(device)
            weight, bias = (torch.ones(width, dtype=dtype).to(device) for _ in range(2))
            known: dict[str, object] = {"normalized_shape": (width,), "weight": weight}
            yield _entry(F.layer_norm, x, options=known | {"bias": bias})
            yield _entry(F.rms_norm, x, options=known)
            yield _entry(F.softmax, x, options={"dim": -1})
            yield _entry(F.log_softmax, x, options={"dim": -1})


def elementwise(device: str, dtype: torch.dtype) -> Iterator[Entry]:
    """Functions of one and two arrays."""
    for width in WIDTHS:
        x, y = (torch.ones(ROWS[-1], width, dtype=dtype).to(device) for _ in range(2))
        for one in UNARY:
            yield _entry(one, x, options={})
        for two in BINARY:
            yield _entry(two, x, y, options={})


def reductions(device: str, dtype: torch.dtype) -> Iterator[Entry]:
    """Over the last dimension and the first."""
    for width in WIDTHS:
        x = torch.ones(ROWS[-1], width, dtype=dtype).to(device)
        for function in REDUCTIONS:
            for dim in (-1, 0):
                yield _entry(function, x, options={"dim": dim})
