"""Jagged nested tensors on the device: what makes, takes apart and computes with them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nested._internal.nested_tensor import nested_from_padded

import fuse
from tests.device.helpers import DEVICE
from tests.device.nested.programs import Program, flat, jagged, parts, saved, with_gaps

nested: Any = torch.nested
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def ints(device: Any) -> Any:
    sequences = [torch.arange(3), torch.arange(5) - 2]
    return nested.nested_tensor(sequences, layout=torch.jagged, device=device)


def truths(device: Any) -> Any:
    return jagged(device) > 0


def apart(x: Any) -> list[Any]:
    return [one.tolist() for one in x]


def narrowed(device: Any, start: Any) -> Any:
    dense = torch.arange(60.0).view(3, 5, 4).to(device)
    lengths = torch.tensor([3, 2, 1]).to(device)
    return nested.narrow(dense, 1, start, lengths, layout=torch.jagged)


def rows(device: Any) -> torch.Tensor:
    return torch.arange(20.0).view(10, 2).to(device)


def ends(device: Any) -> torch.Tensor:
    return torch.tensor([0, 3, 5, 10]).to(device)


def from_padded(device: Any) -> Any:
    x = jagged(device)
    padded = x.to_padded_tensor(0.0) * 2
    return nested_from_padded(padded, x.offsets(), sum_S=x.values().size(0))


def written(device: Any) -> Any:
    x, copied = jagged(device), torch.empty_like(jagged(device))
    x.mul_(2).add_(1)
    other = torch.zeros_like(x)
    other.copy_(x)
    return x, other, copied.shape[2]


def like(x: Any) -> list[Any]:
    return [torch.ones_like(x), torch.zeros_like(x), torch.full_like(x, 3.0)]


MADE: dict[str, Program] = {
    "of a list": jagged,
    "from offsets": lambda d: nested.nested_tensor_from_jagged(rows(d), ends(d)),
    "from lengths": lambda d: nested.nested_tensor_from_jagged(
        rows(d), lengths=torch.tensor([3, 2, 5]).to(d)
    ),
    "from both": with_gaps,
    "ragged in the last": lambda d: nested.nested_tensor_from_jagged(
        rows(d).t(), ends(d), jagged_dim=2
    ),
    "as nested": lambda d: nested.as_nested_tensor(
        [one.to(d) for one in parts()], layout=torch.jagged
    ),
    "as nested, dense": lambda d: nested.as_nested_tensor(
        torch.arange(24.0).view(2, 3, 4).to(d), layout=torch.jagged
    ),
    "as nested, moved": lambda d: nested.as_nested_tensor(parts(), layout=torch.jagged, device=d),
    "moved": lambda d: jagged("cpu").to(d),
    "moved and back": lambda d: jagged("cpu").to(d).cpu(),
    "converted": lambda d: jagged(d).to(torch.bfloat16),
    "moved and converted": lambda d: jagged("cpu").to(d, torch.float64),
    "narrow": lambda d: narrowed(d, torch.tensor([0, 1, 2]).to(d)),
    "narrow, dense": lambda d: narrowed(d, 0).contiguous(),
    "masked_select": lambda d: nested.masked_select(
        torch.arange(12.0).view(3, 4).to(d), (torch.arange(12).view(3, 4) % 3 > 0).to(d)
    ),
    "from padded": from_padded,
    "saved and loaded": saved,
    "copied": lambda d: copy.deepcopy(jagged(d)),
    "written": written,
    "like it": lambda d: like(jagged(d)),
}
TAKEN_APART: dict[str, Program] = {
    "unbind": lambda d: jagged(d).unbind(),
    "unbind with gaps": lambda d: with_gaps(d).unbind(),
    "numbers": lambda d: apart(jagged(d)),
    "padded": lambda d: jagged(d).to_padded_tensor(0.5),
    "padded further": lambda d: nested.to_padded_tensor(jagged(d), -1.0, (4, 6, 8)),
    "padded integers": lambda d: ints(d).to_padded_tensor(-1),
    "padded truths": lambda d: truths(d).to_padded_tensor(0),
    "padded matrices": lambda d: jagged(d).unflatten(-1, [2, 4]).to_padded_tensor(7.0),
    "facts": lambda d: [x := jagged(d), x.dim(), x.numel(), x.is_contiguous()][1:],
    "one of them": lambda d: [jagged(d)[1], jagged(d).select(0, 2)],
    "columns": lambda d: [jagged(d)[..., 2], jagged(d)[..., 2:5]],
}
SHAPES: dict[str, Any] = {
    "chunk": lambda x: x.chunk(2, -1),
    "chunk the batch": lambda x: x.chunk(2, 0),
    "split": lambda x: [*x.split(4, -1), *x.split([2, 6], -1)],
    "transpose": lambda x: x.transpose(1, 2),
    "transpose heads": lambda x: x.unflatten(-1, [2, 4]).transpose(1, 2).contiguous(),
    "permute": lambda x: x.unflatten(-1, [2, 4]).permute(0, 2, 1, 3),
    "unsqueeze": lambda x: [x.unsqueeze(-1), x.unsqueeze(1), x.unsqueeze(-1).squeeze(-1)],
    "view": lambda x: [x.view(4, x.shape[1], 2, 4), x.reshape(4, -1, 2, 4)],
    "flatten": lambda x: x.unflatten(-1, [2, 4]).flatten(-2),
    "expand": lambda x: x.unsqueeze(-1).expand(4, x.shape[1], 8, 3),
    "cat": lambda x: [torch.cat([x, x * 2], -1), torch.stack([x, x * 2], -1)],
}
COMPUTED: dict[str, Any] = {
    "unary": lambda x: [F.silu(x), x.sigmoid().floor(), x.isnan(), F.gelu(x), ~(x > 0)],
    "binary": lambda x: [x + x.abs(), x.atan2(x * 2 + 1), torch.maximum(x, -x), x < x.abs()],
    "numbers": lambda x: (x * 2 + 1) / 3,
    "rows and batches": lambda x: [
        x * torch.arange(8.0).to(x.device),
        x + torch.arange(4.0).view(4, 1, 1).to(x.device),
    ],
    "choices": lambda x: [
        torch.where(x > 0, x, torch.zeros_like(x)),
        x.masked_fill(x > 0, 3.0),
        x.clamp(-0.5, 0.5),
    ],
    "linear": lambda x: F.linear(x, torch.ones(5, 8).to(x.device), torch.ones(5).to(x.device)),
    "matmul": lambda x: x @ torch.arange(40.0).view(8, 5).to(x.device),
    "matmul over sequences": lambda x: x.transpose(1, 2) @ x,
    "bmm": lambda x: torch.bmm(x, torch.arange(64.0).view(4, 8, 2).to(x.device)),
    "layer_norm": lambda x: [F.layer_norm(x, (8,)), F.layer_norm(x, (x.shape[1], 8))],
    "rms_norm": lambda x: F.rms_norm(x, (8,), torch.arange(8.0).to(x.device)),
    "dropout": lambda x: [F.dropout(x, 0.5, False), F.dropout(x, 0.5).values().shape],
    "softmax": lambda x: [x.softmax(-1), x.log_softmax(-1), x.softmax(1)],
    "sum": lambda x: [x.sum(1), x.sum(-1), x.sum(1, True), x.sum((0, 1)), x.sum()],
    "mean": lambda x: [x.mean(1), x.mean(-1), x.mean(1, True), x.mean()],
    "extremes": lambda x: [x.amax(1), x.amin(-1), x.max(dim=1), x.argmin(1), x.amax(1, True)],
    "prod": lambda x: [x.prod(1), (x > 0).any(1), (x > 0).all(-1)],
    "embedding": lambda x: F.embedding((x > 0).long(), torch.arange(20.0).view(5, 4).to(x.device)),
}
EXTREMES = {"integers": ints, "truths": lambda d: truths(d).long()}


def agree(program: Program) -> None:
    """What the device makes is what the CPU makes, and no call of it ran on the host."""
    expected = flat(program("cpu"))
    before = dict(fuse.stats()["host_fallbacks"])
    found = flat(program(DEVICE))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert fuse.stats()["host_fallbacks"] == before


@pytest.mark.parametrize("name", MADE)
def test_made(name: str) -> None:
    agree(MADE[name])


@pytest.mark.parametrize("name", TAKEN_APART)
def test_taken_apart(name: str) -> None:
    agree(TAKEN_APART[name])


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    agree(lambda device: SHAPES[name](jagged(device)))


@pytest.mark.parametrize("name", COMPUTED)
def test_computed(name: str) -> None:
    agree(lambda device: COMPUTED[name](jagged(device)))


@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_of_integers(name: str) -> None:
    """PyTorch pads with infinity before it reduces: for integers it is their extreme."""
    agree(lambda d: [f(EXTREMES[name](d)) for f in (lambda x: x.amax(1), lambda x: x.amin(1))])


def test_it_is_of_the_device() -> None:
    x = jagged(DEVICE)
    assert x.device == x.values().device == x.offsets().device == torch.device("tpu", 0)
    assert x.layout == torch.jagged and x.is_nested


def test_it_prints() -> None:
    text = repr(jagged(DEVICE))
    offsets = "offsets=tensor([ 0,  3,  4,  8, 10], device='tpu:0'), contiguous=True)"
    assert text.startswith("NestedTensor(size=(4, j") and text.endswith(offsets)


@pytest.mark.filterwarnings("ignore:.*_padded_dense_to_jagged_forward runs on the host")
def test_an_unknown_number_of_rows_is_read_on_the_host() -> None:
    dense, offsets = torch.ones(2, 3, 4, device=DEVICE), torch.tensor([0, 2, 3]).to(DEVICE)
    found = torch.ops.aten._padded_dense_to_jagged_forward(dense, [offsets])
    assert found.shape == (3, 4) and found.sum().item() == 12


def test_debug_eager() -> None:
    with fuse.DebugEager():
        agree(lambda device: jagged(device).softmax(1).sum(1))
