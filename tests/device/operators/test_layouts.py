"""Results lie in memory as those of PyTorch's CPU kernels do, whatever their operands' order."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

from tests.coverage.operators import ENTRIES
from tests.coverage.samples import Call, Samples
from tests.device.helpers import DEVICE
from tests.marks import slow_but

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
    "two apart, not from the first": (slice(None), rows, slice(None), rows),
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
@pytest.mark.parametrize("index", INDICES)
def test_assignments_at_indices(operand: str, index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of values as many as are selected, and of each one that is broadcast: none on the host."""
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "error")
    x, parts = OPERANDS[operand](torch.randn(2, 3, 4, 5)).contiguous(), INDICES[index]
    indices = [part for part in parts if isinstance(part, torch.Tensor)]

    def program(x: torch.Tensor, value: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        given, x = iter(tensors), x.clone()
        x[tuple(next(given) if isinstance(part, torch.Tensor) else part for part in parts)] = value
        return x

    shape = x[parts].shape
    # Equal numbers: which of several values for one place is kept, nobody says.
    for fitting in (shape, shape[1:], (1, *shape[1:]), (*shape[:-1], 1), ()):
        agrees(program, x, torch.full(fitting, 3.0), *indices)


@pytest.mark.parametrize("operand", OPERANDS)
def test_what_takes_the_nearest_format(operand: str) -> None:
    x = OPERANDS[operand](torch.randn(2, 3, 4, 5))
    agrees(lambda x: x.roll(1, 1), x)
    agrees(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), x)
    agrees(lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), x)
    agrees(lambda x: F.batch_norm(x, None, None, training=True), x)


# ---- every operator ------------------------------------------------------------------------

NAMES = sorted(ENTRIES)
PIECES = 32
QUICK = range(0, PIECES, 8)
DTYPES = (torch.float32, torch.int64, torch.complex64)
SAMPLES = 2
ORDERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as it is": lambda x: x,
    "transposed": lambda x: x.mT.contiguous().mT if x.dim() > 1 else x,
    "inverted": lambda x: x.permute(_back(x)).contiguous().permute(_back(x)),
    "channels last": lambda x: x.contiguous(memory_format=LAST) if x.dim() == 4 else x,
    "with gaps": lambda x: torch.stack([x, x], -1)[..., 0],
}
GAPS = "the CPU's result has gaps as its operand, and the device's tensors have none"
ATTENTION = "how attention's results lie depends on which of the CPU's kernels computes it"
OTHERWISE = {
    r"(select|slice|diagonal)_scatter: .* with gaps": GAPS,
    r"nn\.functional\.scaled_dot_product_attention: .*": ATTENTION,
    r"_segment_reduce\..*": "it is composed of operations",
    r"nn\.functional\.conv_transpose3d: .* channels last": "oneDNN's kernel is not asked",
}
"""Calls whose results may lie otherwise than the CPU's, and why."""


def _back(x: torch.Tensor) -> list[int]:
    return list(reversed(range(x.dim())))


def _forms(info: Any, sample: Any, order: str, device: str) -> list[Any] | None:
    """Sizes and strides of results and gradients; ``None`` where the CPU refuses."""

    def ordered(value: Any) -> Any:
        return ORDERS[order](value.detach()).requires_grad_(value.requires_grad)

    moved = sample.transform(lambda value: ordered(value) if torch.is_tensor(value) else value)
    call = Call(moved, device)
    try:
        results = [one for one in tree_leaves(call(info.op)) if torch.is_tensor(one)]
        heads = [one for one in results if one.requires_grad]
        leaves = [one for one in tree_leaves(call.inputs) if torch.is_tensor(one)]
        leaves = [one for one in leaves if one.requires_grad]
        if heads and leaves:
            ones = [torch.ones_like(one) for one in heads]
            results += torch.autograd.grad(heads, leaves, ones, allow_unused=True)
    except Exception:
        if device == "cpu":
            return None
        raise
    return [None if one is None else _form(one) for one in results]


def _form(tensor: torch.Tensor) -> tuple[list[int], list[int]]:
    """The sizes, and the strides that say anything."""
    sizes = list(tensor.shape)
    pairs = zip(sizes, tensor.stride(), strict=True)
    return sizes, [step for size, step in pairs if size > 1 and tensor.numel()]


def _otherwise(name: str) -> list[str]:
    found = []
    samples = Samples(ENTRIES[name])
    for dtype in DTYPES:
        if dtype not in ENTRIES[name].supported_dtypes("cpu"):
            continue
        gradient = samples.differentiable(dtype)
        for number, sample in enumerate(samples.plain(dtype, SAMPLES, gradient)):
            for order in ORDERS:
                call = f"{name}: {dtype} {number} {order}"
                expected = _forms(ENTRIES[name], sample, order, "cpu")
                if expected is None or any(re.fullmatch(one, call) for one in OTHERWISE):
                    continue
                given = _forms(ENTRIES[name], sample, order, "tpu")
                if given != expected:
                    found.append(f"{call}: {given}, on the CPU {expected}")
    return found


@pytest.mark.parametrize("piece", slow_but(QUICK, range(PIECES)))
@pytest.mark.filterwarnings("ignore")
def test_every_operator_lays_out_its_results_as_on_the_cpu(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    found = [line for name in NAMES[piece::PIECES] for line in _otherwise(name)]
    assert "\n".join(found) == ""
