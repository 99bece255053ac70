"""Operators that are composed of others run whole where their calls run uncompiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from fuse.device.composites.registry import WHOLE
from tests.device.helpers import DEVICE, Counted, recorder
from tests.lanes import not_on_accelerators

pytestmark = not_on_accelerators("no call runs uncompiled there")

CPU = torch.device("cpu")
Found = tuple[torch.Tensor, ...]


def numbers(device: torch.device) -> torch.Tensor:
    return torch.tensor([3, 1, 1, 4, 1, 5, 5, 2], device=CPU).to(device)


def spread(device: torch.device, *sizes: int) -> torch.Tensor:
    count = torch.Size(sizes).numel()
    return (torch.arange(count, device=CPU).reshape(sizes) * 37 % 23 / 7 - 1).to(device)


def attention(device: torch.device) -> Found:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval().to(device)
    x = spread(device, 2, 5, 8)
    with torch.no_grad():
        plain, _ = layer(x, x, x, need_weights=False)
        mask = torch.ones(5, 5, dtype=torch.bool, device=device).triu(1)
        return (plain, *layer(x, x, x, attn_mask=mask))


def encoder(device: torch.device) -> Found:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval().to(device)
    with torch.no_grad():
        return (layer(spread(device, 2, 5, 8)),)


def segments(device: torch.device) -> Found:
    data = spread(device, 8, 2).requires_grad_()
    lengths = torch.tensor([3, 0, 5], device=device)
    found = torch.segment_reduce(data, "sum", lengths=lengths, initial=0.0)
    found.square().sum().backward()
    assert data.grad is not None
    return found.detach(), data.grad


PROGRAMS: dict[str, Callable[[torch.device], Found]] = {
    "unique": lambda d: torch.unique(numbers(d), return_inverse=True, return_counts=True),
    "unique, values alone": lambda d: (torch.unique(numbers(d)),),
    "unique rows": lambda d: torch.unique(numbers(d).view(4, 2), dim=0, return_counts=True),
    "consecutive": lambda d: torch.unique_consecutive(numbers(d), return_counts=True),
    "consecutive rows": lambda d: (torch.unique_consecutive(numbers(d).view(4, 2), dim=0),),
    "bincount": lambda d: (torch.bincount(numbers(d), spread(d, 8), minlength=9),),
    "repeat": lambda d: (torch.repeat_interleave(numbers(d)),),
    "nonzero_static": lambda d: (torch.nonzero_static(numbers(d) > 2, size=6),),
    "histogram": lambda d: torch.histogram(spread(d, 20), 5, weight=spread(d, 20)),
    "histogram of edges": lambda d: torch.histogram(spread(d, 20), spread(d, 4).sort()[0]),
    "histogramdd": lambda d: (torch.histogramdd(spread(d, 20, 2), [3, 4]).hist,),
    "rows": lambda d: (
        torch._convert_indices_from_coo_to_csr(numbers(d).sort()[0], 7),
        torch._convert_indices_from_csr_to_coo(
            torch.tensor([0, 2, 3], device=d), numbers(d)[:3], out_int32=True
        ),
    ),
    "attention": attention,
    "encoder": encoder,
    "segments": segments,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("tier", ["uncompiled", "compiled"])
def test_they_are_the_cpus(tier: str, name: str) -> None:
    expected = PROGRAMS[name](CPU)
    with recorder(tier=tier):
        begun = torch.ones(2, device=DEVICE) + 1  # else the segment begins with a part of them
        found = PROGRAMS[name](DEVICE)
        assert begun.tolist() == [2, 2]
        for mine, theirs in zip(found, expected, strict=True):
            assert mine.device.type == DEVICE.type
            torch.testing.assert_close(mine.cpu(), theirs)


def test_none_of_their_parts_is_recorded_or_read() -> None:
    with recorder(tier="uncompiled"), Counted() as found:
        x = numbers(DEVICE) * 1
        torch.unique(x)
        torch.bincount(x)
        torch.repeat_interleave(x)
    assert found.recorded == 0
    assert found.uncompiled == 4


def test_an_error_is_pytorchs() -> None:
    with recorder(tier="uncompiled"):
        x = numbers(DEVICE) * -1
        with pytest.raises(RuntimeError, match="bincount only supports 1-d non-negative"):
            torch.bincount(x)


def test_each_is_one_of_the_cpus() -> None:
    for name in WHOLE:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CPU")
