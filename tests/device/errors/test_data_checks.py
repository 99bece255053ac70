"""Data that the CPU's kernels refuse is an error where results are read, in every tier."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fuse
from fuse.device import lazy
from fuse.device.started import device
from fuse.engine import data_checks
from tests.lanes import only_in

DEVICE = torch.device("tpu")
HERE = Path(__file__).name
Function = Callable[[Tensor, Tensor], Tensor]

LATE = only_in("compiled", "accelerator", reason="uncompiled the CPU's kernel says it at the call")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    lazy.engine().data_checks.check()
    torch._dynamo.reset()


def table() -> Tensor:
    return torch.arange(20.0).reshape(5, 4) / 20


INDEXING: dict[str, Function] = {
    "index": lambda x, i: x[i],
    "index of two dimensions": lambda x, i: x[i, i // 2],
    "index_put": lambda x, i: x.index_put((i,), torch.ones(4, device=x.device)),
    "index_put_, accumulating": lambda x, i: x.clone().index_put_((i,), x[0], accumulate=True),
    "x[i] = value": lambda x, i: set_rows(x.clone(), i),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, torch.ones(len(i), 4, device=x.device)),
    "index_copy": lambda x, i: x.index_copy(0, i, torch.ones(len(i), 4, device=x.device)),
    "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[: len(i)], "amax"),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "scatter_": lambda x, i: x.clone().scatter_(0, i[:, None], x * 2),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x, "amax"),
    "take": lambda x, i: x.take(i + 15),
    "put": lambda x, i: x.put(i + 15, torch.ones(len(i), device=x.device)),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x),
    "one_hot": lambda x, i: F.one_hot(i, 5),
    "cross_entropy": lambda x, i: F.cross_entropy(x.T[: len(i)], i),
    "cross_entropy of pixels": lambda x, i: F.cross_entropy(x.T[: len(i), :, None], i[:, None]),
    "nll_loss, a class ignored": lambda x, i: F.nll_loss(x.T[: len(i)], i, ignore_index=2),
    "multi_margin_loss": lambda x, i: F.multi_margin_loss(x.T[: len(i)], i),
}


def set_rows(x: Tensor, index: Tensor) -> Tensor:
    x[index] = 3.0
    return x


REFUSING: dict[str, tuple[Function, list[float], str]] = {
    "binary_cross_entropy": (
        lambda x, p: F.binary_cross_entropy(p, torch.ones_like(p)),
        [0.5, 1.5],
        "it takes numbers from 0 to 1, and got others",
    ),
    "bernoulli": (lambda x, p: torch.bernoulli(p), [0.5, -0.5], "it takes numbers from 0 to 1"),
    "multinomial, NaN": (
        lambda x, p: torch.multinomial(p, 1),
        [0.5, float("nan")],
        "a row of probabilities has one that is negative, infinite or NaN, or is all zeros",
    ),
    "multinomial, zeros": (lambda x, p: torch.multinomial(p, 1), [0.0, 0.0], "a row of prob"),
}


@LATE
@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")  # it is in beta
@pytest.mark.parametrize("name", INDEXING)
def test_an_index_out_of_range_is_said_where_the_program_reads(name: str) -> None:
    function, x = INDEXING[name], table()
    fits = torch.tensor([2, 0, 4])
    expected = function(x, fits)
    x = x.to(DEVICE)
    for _ in range(6):
        torch.testing.assert_close(function(x, fits.to(DEVICE)).cpu(), expected)
    found = function(x, torch.tensor([2, 5, 4], device=DEVICE))
    said = rf"index \d+ is out of range for \d+ places\.\n  operator: aten::\w.*\n  at: .*{HERE}:"
    with pytest.raises(IndexError, match=said):
        found.cpu()
    found.cpu()  # once
    torch.testing.assert_close(function(x, fits.to(DEVICE)).cpu(), expected)


@LATE
@pytest.mark.parametrize("name", REFUSING)
def test_numbers_that_are_refused(name: str) -> None:
    function, numbers, said = REFUSING[name]
    for _ in range(6):
        function(table(), torch.tensor([0.25, 1.0], device=DEVICE)).cpu()
    found = function(table(), torch.tensor(numbers, device=DEVICE))
    with pytest.raises(RuntimeError, match=said):
        found.cpu()


CLASSES = torch.tensor([-100, 1, 3])
WITHIN: dict[str, Callable[[torch.device], Tensor]] = {
    "from the end": lambda d: table().to(d)[torch.tensor([-1, -5], device=d)],
    "no index": lambda d: table().to(d)[torch.zeros(0, dtype=torch.int64, device=d)],
    "nothing indexed": lambda d: torch.ones(0, 2, device=d)[torch.ones(0, device=d).long()],
    "a mask": lambda d: table().to(d).index_put((table().to(d) > 0.5,), torch.ones(1, device=d)),
    "a class ignored": lambda d: F.cross_entropy(table().to(d)[:3], CLASSES.to(d)),
    "a number": lambda d: torch.ones((), device=d).gather(0, torch.zeros(2, device=d).long()),
    "a row of zeros": lambda d: torch.bernoulli(torch.zeros(3, device=d)),
}


@pytest.mark.parametrize("name", WITHIN)
def test_what_is_in_range_is_no_error(name: str) -> None:
    torch.testing.assert_close(WITHIN[name](DEVICE).cpu(), WITHIN[name](torch.device("cpu")))


@LATE
def test_in_a_compiled_function() -> None:
    @torch.compile(backend="tpu")
    def function(x: Tensor, index: Tensor) -> Tensor:
        return F.embedding(index, x).sum(1) * 2

    x = table().to(DEVICE)
    function(x, torch.tensor([1, 2], device=DEVICE)).cpu()
    with pytest.raises(IndexError, match=rf"index -1 is .*\n.*embedding.*\n  at: .*{HERE}:"):
        function(x, torch.tensor([1, -1], device=DEVICE)).cpu()


@LATE
def test_of_several_the_first_is_said() -> None:
    x, index = table().to(DEVICE), torch.tensor([7], device=DEVICE)
    with pytest.raises(IndexError, match=r"index 7 is out of range for 5 places"):
        (F.embedding(index, x).sum() + x.index_select(1, index - 1 + 1).sum()).item()
    lazy.engine().data_checks.check()


def training(device: torch.device, last: int) -> list[float]:
    torch.manual_seed(0)
    embedding, head = torch.nn.Embedding(9, 4).to(device), torch.nn.Linear(4, 9).to(device)
    optimizer = torch.optim.SGD([*embedding.parameters(), *head.parameters()], lr=0.1)
    losses = []
    for step in range(20):
        tokens = torch.arange(6 + step % 8) % 9
        tokens[0] = last if step == 19 else 0
        tokens = tokens.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(head(embedding(tokens)), tokens.roll(1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_lengths_that_vary_have_no_index_out_of_range() -> None:
    torch.testing.assert_close(training(DEVICE, 0), training(torch.device("cpu"), 0))
    with pytest.raises(IndexError):
        training(DEVICE, 9)


@LATE
def test_a_loop_that_reads_nothing_keeps_few_states_and_the_first_error() -> None:
    x, checks = table().to(DEVICE), lazy.engine().data_checks
    for step in range(200):
        index = torch.tensor([5 + step if step in (3, 7) else 0], device=DEVICE)
        x = x * F.embedding(index, x).sum()
        device().core.cut("synchronize")
    assert len(checks.states) <= data_checks.MOST + 1
    with pytest.raises(IndexError, match="index 8 is out of range for 5 places"):
        torch.tpu.synchronize()
    assert not checks.states


@LATE
def test_the_same_index_is_checked_once() -> None:
    plans: list[Any] = []
    engine = lazy.engine()
    engine.inspector = lambda runnable, arrays, scalars: plans.append(runnable)
    try:
        x, index = table().to(DEVICE).requires_grad_(), torch.tensor([1, 3], device=DEVICE)
        x[index].square().sum().backward()  # the gradient is written at the same places
        assert x.grad is not None
        x.grad.sum().item()
    finally:
        engine.inspector = None
    (plan,) = [one for one in plans if one.checked is not None]
    assert [node.target for node, _ in plan.checked.calls] == ["index.Tensor"]


def test_debug_eager_says_it_at_the_call() -> None:
    with fuse.DebugEager(), pytest.raises(IndexError, match="index out of range in self"):
        F.embedding(torch.tensor([5], device=DEVICE), table().to(DEVICE))
