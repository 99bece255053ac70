"""``torch.cond``, ``while_loop``, ``scan``, ``map``: one operation each, right, with gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import fuse
from tests.device.helpers import DEVICE
from tests.lanes import only_in

Program = Callable[[Tensor, Tensor], Tensor]
STEPS = 40


def recurrent(x: Tensor, w: Tensor) -> Tensor:
    def step(carried: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        following = torch.tanh(carried @ w + row)
        return following.clone(), following.square()

    last, every = scan(step, torch.zeros_like(x[0]), x)
    return last.sum() + (every * torch.arange(len(x), device=x.device)[:, None]).sum()


def backwards(x: Tensor, w: Tensor) -> Tensor:
    def step(carried: list[Tensor], row: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        made = carried[0] * 0.9 + row[0]
        return [made, carried[1] + row[1].sum()], made * 2

    state = [torch.ones_like(x[0]), torch.zeros((), device=x.device)]
    (first, total), every = scan(step, state, [x, x * 2], reverse=True)
    return first.sum() + total + (every @ w).sum()


def written(x: Tensor, w: Tensor) -> Tensor:
    """What the body writes into is its own."""

    def step(carried: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        made = carried.clone()
        made.add_(row).mul_(0.5)
        return made, made.clone()

    return scan(step, torch.zeros_like(x[0]), x)[1].sum() + w.sum()


def rows(x: Tensor, w: Tensor) -> Tensor:
    return map_over(lambda row, weight: torch.softmax(row @ weight, -1), x, w).square().sum()


def branch(x: Tensor, w: Tensor) -> Tensor:
    found = torch.cond(x.sum() > 0, lambda x, w: (x @ w).sin(), lambda x, w: x @ w, (x, w))
    other = torch.cond(x.sum() < 0, lambda x: x * 2, lambda x: x.exp(), (x,))
    return found.sum() + other.sum()


def halved(x: Tensor, w: Tensor) -> Tensor:
    """As many rounds as the values ask for."""

    def goes_on(count: Tensor, value: Tensor) -> Tensor:
        return (value.abs().max() > 0.1) & (count < 1000)

    def body(count: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return count + 1, torch.tanh(value @ w) * 0.7

    start = torch.zeros((), dtype=torch.int64, device=x.device)
    count, value = while_loop(goes_on, body, (start, x))
    return count + value.sum()


def sums(x: Tensor, w: Tensor) -> Tensor:
    return associative_scan(lambda a, b: a * 0.5 + b, x @ w, 0, combine_mode="generic").sum()


def nested(x: Tensor, w: Tensor) -> Tensor:
    """The inner loop is one operation, the outer one's rounds are PyTorch's."""

    def inner(carried: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        return carried + row, carried * 1.0

    def outer(carried: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        last, _ = scan(inner, carried, (row * w).clone())
        return last, last.clone()

    return scan(outer, torch.zeros_like(x[0]), x[:3])[1].sum()


# Where with gradients, and the most operations of one call; unrolled they are some hundreds.
# PyTorch compiles no gradient of a loop that saves for it what it carries on.
PROGRAMS: dict[str, tuple[Program, tuple[str, ...], int]] = {
    "recurrent": (recurrent, ("eager", "compiled"), 90),
    "backwards": (backwards, ("eager",), 130),
    "written": (written, ("eager", "compiled"), 60),
    "rows": (rows, ("eager", "compiled"), 60),
    "branch": (branch, ("eager", "compiled"), 60),
    "halved": (halved, (), 20),
    "sums": (sums, ("eager", "compiled"), 500),
    "nested": (nested, (), 60),
}


def made() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(STEPS, 6, generator=generator), torch.randn(6, 6, generator=generator)
    return x, w * 0.3


def run(program: Program, inputs: tuple[Tensor, ...], gradients: bool) -> list[Tensor]:
    given = [one.clone().requires_grad_(gradients) for one in inputs]
    result = program(*given)
    if gradients:
        result.backward()
    return [result.detach().cpu(), *(one.grad.cpu() for one in given if one.grad is not None)]


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_those_of_the_cpu(name: str, how: str) -> None:
    program, ways, most = PROGRAMS[name]
    gradients = how in ways
    torch._dynamo.reset()
    expected = run(program, made(), gradients)
    inputs = tuple(one.to(DEVICE) for one in made())
    wrapped = torch.compile(program) if how == "compiled" else program
    for _ in range(3):
        before = fuse.stats()["operations"]
        found = run(wrapped, inputs, gradients)
        operations = fuse.stats()["operations"] - before
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert operations <= most


@only_in("compiled", reason="it chooses its backend")
@pytest.mark.parametrize("name", PROGRAMS)
def test_numpy_agrees(name: str) -> None:
    program, ways, _ = PROGRAMS[name]
    torch._dynamo.reset()
    before = fuse.get_backend()
    fuse.set_backend("numpy")
    try:
        found = run(program, tuple(one.to(DEVICE) for one in made()), bool(ways))
    finally:
        fuse.set_backend(before)
    for one, other in zip(found, run(program, made(), bool(ways)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@only_in("compiled", "accelerator", reason="what runs uncompiled may be cut where it likes")
def test_a_condition_is_not_read() -> None:
    torch._dynamo.reset()
    x, w = (one.to(DEVICE) for one in made())
    branch(x, w).cpu()
    torch.tpu.synchronize()
    before = fuse.stats()["traces"]
    found = branch(x, w)
    assert fuse.stats()["traces"] == before
    torch.testing.assert_close(found.cpu(), branch(*made()))


def test_loops_of_one_body_and_other_lengths_are_told_apart() -> None:
    torch._dynamo.reset()

    def copied(x: Tensor) -> Tensor:
        return scan(lambda total, row: (total + 0, row + 0), torch.zeros_like(x[0]), x)[1]

    for length in (3, 5, 3, 7, 5):
        x = torch.arange(2.0 * length).reshape(length, 2)
        assert torch.equal(copied(x.to(DEVICE)).cpu(), x)


def test_a_branch_of_random_numbers_is_pytorchs() -> None:
    """Both draw what the device draws outside of a branch."""
    torch._dynamo.reset()
    x = torch.ones(5, device=DEVICE)
    torch.manual_seed(3)
    drawn = torch.cond(x.sum() > 0, lambda x: x + torch.rand_like(x), lambda x: x * 2, (x,)).cpu()
    torch.manual_seed(3)
    assert torch.equal(drawn, (x + torch.rand_like(x)).cpu())


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("drawn", [False, True])
def test_a_compiled_branch_follows_its_condition_at_every_call(dynamic: bool, drawn: bool) -> None:
    """Be it one operation or left to PyTorch, which reads a value that is there already."""
    torch._dynamo.reset()

    def choose(condition: Tensor, x: Tensor) -> Tensor:
        def more(x: Tensor) -> Tensor:
            return x + 1 + (torch.rand_like(x) * 0 if drawn else 0)

        return torch.cond(condition, more, lambda x: x - 1, (x,))

    compiled = torch.compile(choose, dynamic=dynamic, fullgraph=True)
    for length in (4, 6):
        x = torch.arange(2.0 * length).reshape(length, 2)
        for yes in (False, True, True, False, True):
            found = compiled(torch.tensor(yes, device=DEVICE), x.to(DEVICE))
            assert torch.equal(found.cpu(), x + 1 if yes else x - 1)


@only_in("compiled", "accelerator", reason="what runs uncompiled may be cut where it likes")
def test_a_branch_with_symbolic_sizes_is_not_read() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda c, x: torch.cond(c, lambda x: x + 1, lambda x: x - 1, (x,)), dynamic=True
    )
    fuse.reset_stats()
    condition, x = torch.tensor(True, device=DEVICE), torch.ones(3, 2, device=DEVICE)
    compiled(condition, x).cpu()
    assert fuse.stats()["compiled"]["by_operation"] == 0


def test_a_loop_beside_a_number_that_is_read() -> None:
    """The graph has stages then, and the loop's own graphs are none of them."""
    torch._dynamo.reset()

    def program(x: Tensor, number: Tensor) -> Tensor:
        scale = number.item()

        def goes_on(step: Tensor, value: Tensor) -> Tensor:
            return step < 3

        def body(step: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            return step + 1, value * 2

        first = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(goes_on, body, (first, x * scale))[1]

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(program, fullgraph=True)
        for number in (1.0, 2.0, 5.0):
            x = torch.arange(4.0)
            found = compiled(x.to(DEVICE), torch.tensor(number, device=DEVICE))
            assert torch.equal(found.cpu(), x * number * 8)


def test_a_loop_of_another_device_is_left_alone() -> None:
    torch._dynamo.reset()
    x, w = made()
    assert torch.isfinite(recurrent(x, w))
