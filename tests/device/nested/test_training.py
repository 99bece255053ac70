"""Gradients, optimizers and compiled graphs over jagged nested tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.device.helpers import DEVICE
from tests.device.nested.programs import Block, flat, jagged

nested: Any = torch.nested
pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),  # PyTorch's own
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),  # of a graph break
]
Function = Callable[[Any, Tensor], Any]


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Every test compiles its own: Dynamo forgets what the last one compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


GRADIENTS: dict[str, Function] = {
    "linear": lambda x, w: F.linear(x, w).relu(),
    "matmul": lambda x, w: x @ w,
    "layer_norm": lambda x, w: F.layer_norm(x, (8,), w[0], w[1]),
    "rms_norm": lambda x, w: F.rms_norm(x, (8,), w[0]),
    "padded": lambda x, w: x.to_padded_tensor(0.0) @ w,
    "mean of rows": lambda x, w: (x * w[0]).mean(-1),
    "largest": lambda x, w: (x * w[0]).amax(1),
    "softmax": lambda x, w: (x * w[0]).softmax(-1),
    "softmax of sequences": lambda x, w: (x * w[0]).softmax(1),
    "chunk and cat": lambda x, w: torch.cat([t * 2 for t in (x * w[0]).chunk(2, -1)], -1),
    "unbind": lambda x, w: torch.cat([t @ w for t in x.unbind()]),
    "heads": lambda x, w: (x * w[0]).view(4, -1, 2, 4).transpose(1, 2).contiguous(),
    "values": lambda x, w: x.values() @ w,
    "select": lambda x, w: x.select(0, 1) @ w,
}


def gradients(device: Any, function: Function) -> list[Tensor | None]:
    x = jagged(device, requires_grad=True)
    w = (torch.arange(64.0).view(8, 8) / 64).to(device).requires_grad_()
    out = function(x, w)
    (out.values() if out.is_nested else out).square().sum().backward()
    return [x.grad, w.grad]


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(flat(found), flat(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str, how: str) -> None:
    function = GRADIENTS[name]
    expected = gradients("cpu", function)
    close(gradients(DEVICE, function if how == "eager" else torch.compile(function)), expected)


def trained(device: Any, compiled: bool, lengths: Any) -> list[Tensor]:
    """The losses of some steps of AdamW, and a weight at the end."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    call = torch.compile(model, fullgraph=True) if compiled else model
    losses = []
    for one in lengths:
        optimizer.zero_grad()
        loss = (call(jagged(device, 16, one)).values() - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return [*losses, next(model.parameters())]


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("lengths", [[(3, 1, 4)] * 4, [(3, 1, 4), (2, 6, 2), (5, 5, 1), (1, 1, 1)]])
def test_training(how: str, lengths: list[tuple[int, ...]]) -> None:
    expected = trained("cpu", False, lengths)
    found = trained(DEVICE, how == "compiled", lengths)
    torch.testing.assert_close(flat(found), flat(expected), rtol=2e-3, atol=2e-4)


def results(device: Any, call: Any) -> list[Any]:
    with torch.no_grad():
        return [call(jagged(device, 16, one)) for one in ((3, 1, 4), (2, 6, 2), (5, 5, 1))]


def test_compiled_evaluation_of_changing_lengths() -> None:
    torch.manual_seed(0)
    model = Block().eval()
    expected = results("cpu", model)
    close(results(DEVICE, torch.compile(model.to(DEVICE), fullgraph=True)), expected)


def made_inside(device: Any, call: Any) -> Tensor:
    values, ends = torch.arange(80.0).view(10, 8), torch.tensor([0, 3, 5, 10])
    found: Tensor = call(values.to(device), ends.to(device))
    return found


def test_a_compiled_graph_makes_one_and_attends_without_knowing_the_longest() -> None:
    def function(values: Tensor, ends: Tensor) -> Any:
        x = nested.nested_tensor_from_jagged(values.sin(), ends)
        q = x.unflatten(-1, [2, 4]).transpose(1, 2)
        if values.device.type == "cpu":
            each = [F.scaled_dot_product_attention(one, one, one) for one in q.unbind()]
            return torch.cat([one.transpose(0, 1) for one in each])
        return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).values()

    expected = made_inside("cpu", function)
    close(made_inside(DEVICE, torch.compile(function, fullgraph=True)), expected)
