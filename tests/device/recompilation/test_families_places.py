"""Families: positions, orders and views of sizes that move give what the CPU gives.

Padding is poison here, as in ``test_families``.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fuse
from tests.device.helpers import DEVICE
from tests.device.recompilation import data_programs
from tests.device.recompilation.family_helpers import Unary, agrees, plans, reasons
from tests.lanes import only_in

pytestmark = [
    only_in("accelerator", reason="where memory is the host's, sizes that move run on it"),
    pytest.mark.usefixtures("poisoned_padding"),
]


def at(x: torch.Tensor, *places: int) -> torch.Tensor:
    return torch.tensor(places).to(x.device)


def order(x: torch.Tensor) -> torch.Tensor:
    """A permutation of the length."""
    return x[0, :, 0].argsort()


def few(x: torch.Tensor) -> torch.Tensor:
    """As many positions as the length, among -8 to 8."""
    return (x[0, :, 0] * 3).long().clamp(-8, 8)


def written(x: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    y = x * 2
    y[index] = value
    return y


def in_rows(x: torch.Tensor, first: int, room: int) -> torch.Tensor:
    """Rows of the length written to larger ones, one by one."""
    y = torch.zeros(3, room, 4, device=x.device)
    for row in range(3):
        y[row, first : first + x.shape[1]] = x[row]
    return y


def gradient(function: Unary, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    loss = function(x).square().sum()
    return torch.autograd.grad(loss, x)[0]


INDICES: dict[str, Unary] = {
    "from the end": lambda x: x[:, at(x, -1, -2, 1)],
    "of rows behind each other": lambda x: x.flatten(0, 1)[at(x, 14, -14, 2)],
    "selected": lambda x: x.flatten(0, 1).index_select(0, at(x, 14, 2)),
    "gathered": lambda x: x.flatten(0, 1).gather(0, at(x, 14, 2, 1, 0)[None]),
    "several": lambda x: (x[at(x, 0, 1), at(x, -1, 2)], x[at(x, 0, 1), :, at(x, -1, 2)]),
    "added": lambda x: x.flatten(0, 1).index_add(0, at(x, 14, 2), x.new_ones(2, 4)),
    "scattered and added": lambda x: x.flatten(0, 1).scatter_add(
        0, at(x, 14, 2, 1, 0)[None], x.new_ones(1, 4)),
    "scattered into rows behind each other": lambda x: x.flatten(0, 1).scatter(
        0, at(x, 14, 2, 1, 0)[None], x.new_ones(1, 4)),
    "scattered": lambda x: x[..., 0].scatter(1, x[..., 1].argsort(1), x[..., 2]),
    "one number scattered": lambda x: x[..., 0].scatter(1, x[:, :3].argmax(1), 5.0),
    "the largest scattered": lambda x: torch.zeros(3, 9, device=x.device).scatter_reduce(
        1, few(x).abs()[None].expand(3, -1), x[..., 2], "amax"),
    "put": lambda x: torch.zeros(9, 4, device=x.device).index_put((few(x),), x.new_ones(4)),
    "put and added": lambda x: torch.zeros(9, 4, device=x.device).index_put(
        (few(x),), x.new_ones(()), accumulate=True),
    "put in a grid": lambda x: torch.zeros(9, x.shape[1], device=x.device).index_put(
        (at(x, 1, -2)[:, None], order(x)), x[:2, :, 0]),
    "put in a grid that moves": lambda x: torch.zeros(
        x.shape[1], x.shape[1], device=x.device).index_put(
        (order(x)[:, None], x[1, :, 0].argsort()), x[1, :, 0], accumulate=True),
    "put by pairs": lambda x: torch.zeros(x.shape[1], 9, device=x.device).index_put(
        (order(x), few(x)), x[1, :, 0], accumulate=True),
    "put in place": lambda x: written(x, (slice(None), order(x)), x * 3),
    "copied": lambda x: torch.zeros_like(x).index_copy(1, order(x), x),
    "filled": lambda x: x.index_fill(1, x[0, :3].argmax(0), 0.0),
}  # fmt: skip

ORDERS: dict[str, Unary] = {
    "sums so far of rows behind each other": lambda x: x.flatten(0, 1).cumsum(0),
    "products so far": lambda x: (x.cumprod(1), x.flatten(0, 1).cumprod(0)),
    "in place": lambda x: (x * 2).cumsum_(1).cumsum_(0),
    "gradients of sums so far": lambda x: gradient(lambda x: x.cumsum(1), x),
    "places among rows behind each other": lambda x: (
        x.flatten(0, 1).argmax(0), *x.flatten(0, 1).min(0), x.argmax(), x.flatten().argmin()),
    "sorted": lambda x: (*x.sort(1), *x.sort(1, descending=True), x.argsort(1)),
    "sorted beyond all numbers": lambda x: (
        *x.masked_fill(x > 0, math.inf).sort(stable=True, dim=1),
        *x.masked_fill(x > 0, math.nan).sort(stable=True, dim=1),
        *x.masked_fill(x > 0, -math.inf).sort(stable=True, dim=1, descending=True)),
    "the smallest, NaN last": lambda x: x.masked_fill(x > 0, math.nan).topk(
        5, 1, largest=False).values,
    "sorted rows behind each other": lambda x: (*x.flatten(0, 1).sort(0), x.flatten().topk(3)[0]),
    "reversed": lambda x: (x.flip(1), x.flip((0, 1)), x.flatten(0, 1).flip(0)),
    "rolled": lambda x: (x.roll(1, 1), x.roll((2, -1), (1, 0))),
    "searched": lambda x: torch.searchsorted(
        x[0, :, 0].sort()[0], torch.cat([x[1, :, 0], at(x, 9) * math.inf]), right=True),
    "searched from the left": lambda x: torch.searchsorted(
        x[0, :, 0].sort()[0], torch.cat([x[1, :, 0], at(x, 9) * math.nan])),
    "in buckets": lambda x: torch.bucketize(x, at(x, -1, 0, 1)),
}  # fmt: skip

VIEWS: dict[str, Unary] = {
    "every second": lambda x: (x[:, ::2] * 2, x[:, 1::2].sum(1)),
    "gradients of every second": lambda x: gradient(lambda x: x[:, 1::2], x),
    "gradients of some": lambda x: gradient(lambda x: x[:, 3] + x[:, -2], x),
    "diagonals": lambda x: (x @ x.transpose(1, 2)).diagonal(dim1=1, dim2=2) * 2,
    "windows": lambda x: (x + 1).unfold(1, 3, 1).sum(-1),
    "in other rows": lambda x: (x + 1).reshape(-1, 6)[:, :3].sum(0),
    "in two rows": lambda x: (x + 1).reshape(2, -1).softmax(1),
    "with what lies otherwise": lambda x: x.flatten(0, 1) * torch.arange(
        3 * x.shape[1], device=x.device)[:, None],
    "and back": lambda x: (x.flatten(0, 1) * torch.arange(
        3 * x.shape[1], device=x.device)[:, None]).view(x.shape).sum(1),
    "written behind the first": lambda x: written(x, (slice(None), slice(1, None)), 5),
    "written before the last": lambda x: written(x, (slice(None), slice(0, -2)), x[:, 2:]),
    "written every second": lambda x: written(x, (slice(None), slice(0, None, 2)), x[:, ::2]),
    "written to the beginning of rows": lambda x: in_rows(x, 0, 64),
    "written to the end of rows": lambda x: in_rows(x, 2, x.shape[1] + 2).sum(1),
    "widened": lambda x: (F.pad(x, (0, 0, 2, 1), value=3.0), F.pad(x, (0, 0, -1, -1))),
    "repeated": lambda x: (x.repeat(1, 2, 1).softmax(1), x.repeat_interleave(2, 1)),
}  # fmt: skip

ALL = {**INDICES, **ORDERS, **VIEWS}


@pytest.mark.parametrize("name", ALL)
def test_it_gives_what_the_cpu_gives(name: str) -> None:
    agrees(ALL[name])
    assert plans() > 0 and reasons() == {}


@pytest.mark.parametrize("name", data_programs.PROGRAMS)
def test_sizes_that_are_data_make_few_executables(name: str) -> None:
    """And nothing of it runs on the host."""
    program, most = data_programs.PROGRAMS[name]
    before = fuse.stats()["compiles"]
    for seed in range(12):
        values = torch.Generator().manual_seed(seed)
        expected = program(values, torch.device("cpu"))
        found = program(values.manual_seed(seed), DEVICE)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert fuse.stats()["host_fallbacks"] == {}
    assert reasons() == {}
    assert fuse.stats()["compiles"] - before <= most


def test_the_gradient_of_a_slice_whose_place_moves() -> None:
    """Of the length's end, and of its middle, in arrays of several lengths."""
    for start, length in ((1, 9), (2, 9), (-4, 9), (3, 12), (1, 12), (-5, 12), (2, 15), (-3, 15)):

        def part(x: torch.Tensor, start: int = start) -> torch.Tensor:
            stop = start + 3
            return x[:, start : stop or None].exp()

        x = torch.randn(2, length, 4, generator=torch.Generator().manual_seed(length))
        found = gradient(part, x.to(DEVICE))
        torch.testing.assert_close(found.cpu(), gradient(part, x))
    assert plans() > 0 and reasons() == {}
