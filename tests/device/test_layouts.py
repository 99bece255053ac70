"""Results lie in memory as those of PyTorch's CPU kernels do, whatever their operands' order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.device.helpers import DEVICE

LAST = torch.channels_last
Arguments = tuple[torch.Tensor, ...]


def agrees(program: Callable[..., Any], *operands: torch.Tensor) -> None:
    """Asserts that sizes, strides and values are the CPU's; twice, for known streams."""
    expected = program(*operands)
    for _ in range(2):
        found = program(*(operand.to(DEVICE) for operand in operands))
        results = zip(_tensors(expected), _tensors(found), strict=True)
        for cpu, result in results:
            assert (result.shape, result.stride()) == (cpu.shape, cpu.stride())
            torch.testing.assert_close(result.cpu(), cpu, rtol=1e-5, atol=1e-5)


def _tensors(results: Any) -> tuple[torch.Tensor, ...]:
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("last", ["input", "weight", "both", "neither"])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_keep_channels_last(kernel: int, last: str, transposed: bool) -> None:
    x, weight = torch.randn(2, 3, 5, 5), torch.randn(3, 4, kernel, kernel)
    weight = weight if transposed else weight.transpose(0, 1).contiguous()
    x = x.to(memory_format=LAST) if last in ("input", "both") else x
    weight = weight.to(memory_format=LAST) if last in ("weight", "both") else weight
    convolve = F.conv_transpose2d if transposed else F.conv2d

    def program(x: torch.Tensor, weight: torch.Tensor) -> Arguments:
        x = x.detach().requires_grad_()
        result = convolve(x, weight)
        return result, result.relu(), *torch.autograd.grad(result.square().sum(), x)

    agrees(program, x, weight)


@pytest.mark.parametrize("shape", [(2, 4, 1, 1), (1, 4, 5, 5), (2, 4, 1, 5)])
def test_convolutions_where_strides_say_little(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape).to(memory_format=LAST)
    for channels in (1, 4):
        agrees(F.conv2d, x, torch.randn(channels, 4, 1, 1))


OPERANDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "row-major": lambda x: x,
    "channels last": lambda x: x.to(memory_format=LAST),
    "transposed": lambda x: x.transpose(2, 3),
    "permuted": lambda x: x.permute(3, 0, 2, 1),
    "expanded": lambda x: x[:1].expand(x.shape),
    "every second": lambda x: x[:, ::2],
}
rows = torch.tensor([1, 0, 1])
table = torch.tensor([[0, 1, 1], [1, 0, 1]])
INDICES: dict[str, tuple[Any, ...]] = {
    "a row": (rows,),
    "a table": (table,),
    "a table, transposed": (table.t(),),
    "transposed, in the second dimension": (slice(None), table.t()),
    "two": (rows, rows),
    "two apart": (rows, slice(None), rows),
    "before a new dimension": (None, rows),
    "expanded": (rows[:1].expand(4),),
    "none": (rows[:0],),
    "broadcast": (rows[:, None], rows[:2]),
}


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("index", INDICES)
def test_indexing(operand: str, index: str) -> None:
    indices = [part for part in INDICES[index] if isinstance(part, torch.Tensor)]

    def program(x: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        given = iter(tensors)
        parts = INDICES[index]
        return x[tuple(next(given) if isinstance(part, torch.Tensor) else part for part in parts)]

    agrees(program, OPERANDS[operand](torch.randn(2, 3, 4, 5)), *indices)


@pytest.mark.parametrize("operand", OPERANDS)
def test_what_takes_the_nearest_format(operand: str) -> None:
    x = OPERANDS[operand](torch.randn(2, 3, 4, 5))
    agrees(lambda x: x.roll(1, 1), x)
    agrees(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), x)
    agrees(lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), x)
    agrees(lambda x: F.batch_norm(x, None, None, training=True), x)
