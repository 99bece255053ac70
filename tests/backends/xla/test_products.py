"""Products that are added up, or share their right operand, are one, and their sum is the CPU's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from fuse.backends.base import Chunk
from fuse.backends.xla import products
from fuse.backends.xla.products import LARGEST, Batch, Sum, batches, sums
from tests.device.helpers import DEVICE, compile_anew, made, recorder

CPU = torch.device("cpu")
Found = tuple[list[int], list[int]]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[Found]:
    """The numbers of products that became one: in sums, and in batches."""
    noted: Found = ([], [])

    def note_sums(chunk: Chunk) -> list[Sum]:
        one = sums(chunk)
        noted[0].extend(len(each.products) for each in one)
        return one

    def note_batches(chunk: Chunk) -> list[Batch]:
        one = batches(chunk)
        noted[1].extend(len(each.nodes) for each in one)
        return one

    monkeypatch.setattr(products, "sums", note_sums)
    monkeypatch.setattr(products, "batches", note_batches)
    compile_anew(monkeypatch)
    with recorder():
        yield noted


def numbers(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def added(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """The sum of products of tensors that the same trace makes: so they are no batch."""
    total = torch.tanh(pairs[0][0]) @ pairs[0][1]
    for left, right in pairs[1:]:
        total = total + torch.tanh(left) @ right
    return total


def operands(seed: int, left: tuple[int, ...], right: tuple[int, ...]) -> list[torch.Tensor]:
    return [numbers(seed, *left), numbers(seed + 100, *right)]


def plain(x: list[torch.Tensor]) -> torch.Tensor:
    return added([(x[2 * k], x[2 * k + 1]) for k in range(4)])


def left_turned(x: list[torch.Tensor]) -> torch.Tensor:
    return added([(x[2 * k].t(), x[2 * k + 1]) for k in range(4)])


def right_turned(x: list[torch.Tensor]) -> torch.Tensor:
    return added([(x[2 * k], x[2 * k + 1].t()) for k in range(4)])


def now_and_then_turned(x: list[torch.Tensor]) -> torch.Tensor:
    return added([(x[0], x[1]), (x[2].t(), x[3]), (x[4], x[5].t()), (x[6].t(), x[7].t())])


def a_tree(x: list[torch.Tensor]) -> torch.Tensor:
    p = [torch.tanh(x[2 * k]) @ x[2 * k + 1] for k in range(4)]
    return (p[0] + p[1]) + (p[2] + p[3])


def in_place(x: list[torch.Tensor]) -> torch.Tensor:
    total = torch.tanh(x[0]) @ x[1]
    for k in range(1, 4):
        total += torch.tanh(x[2 * k]) @ x[2 * k + 1]
    return total


def scaled(x: list[torch.Tensor]) -> torch.Tensor:
    total = torch.tanh(x[0]) @ x[1]
    for k in range(1, 4):
        total = torch.add(total, torch.tanh(x[2 * k]) @ x[2 * k + 1], alpha=2)
    return total


def with_a_part_needed(x: list[torch.Tensor]) -> torch.Tensor:
    part = added([(x[0], x[1]), (x[2], x[3])])
    return added([(x[4], x[5]), (x[6], x[7])]) + part + part.tanh()


def twice_itself(x: list[torch.Tensor]) -> torch.Tensor:
    part = plain(x)
    return part + part


def broadcast(x: list[torch.Tensor]) -> torch.Tensor:
    total = torch.tanh(x[0][:1]) @ x[1]
    for k in range(1, 4):
        total = total + torch.tanh(x[2 * k]) @ x[2 * k + 1]
    return total


def seen_as(shape: tuple[int, ...]) -> Callable[[list[torch.Tensor]], torch.Tensor]:
    def program(x: list[torch.Tensor]) -> torch.Tensor:
        parts = [(torch.tanh(x[2 * k]) @ x[2 * k + 1]).view(shape) for k in range(len(x) // 2)]
        return sum(parts[1:], parts[0])

    return program


SQUARE = [tensor for k in range(4) for tensor in operands(k, (5, 5), (5, 5))]
SUMS: dict[str, tuple[Callable[[list[torch.Tensor]], torch.Tensor], list[torch.Tensor], list[int]]]
SUMS = {
    "plain": (plain, [t for k in range(4) for t in operands(k, (6, 2 + k), (2 + k, 3))], [4]),
    "left turned": (
        left_turned, [t for k in range(4) for t in operands(k, (2 + k, 6), (2 + k, 3))], [4],
    ),
    "right turned": (
        right_turned, [t for k in range(4) for t in operands(k, (6, 2 + k), (3, 2 + k))], [4],
    ),
    "now and then": (now_and_then_turned, SQUARE, [4]),
    "a tree": (a_tree, SQUARE, [4]),
    "in place": (in_place, SQUARE, [4]),
    "of single numbers": (plain, [t for k in range(4) for t in operands(k, (1, 1), (1, 1))], [4]),
    "scaled": (scaled, SQUARE, []),
    "a part is needed": (with_a_part_needed, SQUARE, []),
    "twice itself": (twice_itself, SQUARE, [4]),
    "a row is repeated": (broadcast, SQUARE, []),
    "float64": (plain, [tensor.double() for tensor in SQUARE], [4]),
    "bfloat16": (plain, [tensor.bfloat16() for tensor in SQUARE], []),
    "seen in three dimensions": (
        seen_as((2, 3, 4)), [t for k in range(3) for t in operands(k, (6, 5), (5, 4))], [3],
    ),
    "of several shapes": (
        seen_as((2, 24)),
        [t for k, n in enumerate((6, 8, 12)) for t in operands(k, (n, 5), (5, 48 // n))],
        [],
    ),
    "large": (plain, [numbers(k, 400, 400) for k in range(8)], []),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_sums(name: str, found: Found):
    program, inputs, wanted = SUMS[name]
    expected = program(inputs)
    placed = [tensor.to(DEVICE) for tensor in inputs]
    for _ in range(3):
        result = program(placed).cpu()
        tolerance = 0.05 if result.dtype == torch.bfloat16 else 1e-4 if name == "large" else 1e-5
        torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)
    assert found == (wanted, [])
    assert name != "large" or sum(one.nbytes for one in inputs) > LARGEST


def test_a_sum_seen_in_three_dimensions_is_read_by_the_next_trace(found: Found):
    def program(device: torch.device) -> torch.Tensor:
        x = [tensor.to(device) for k in range(3) for tensor in operands(k, (6, 5), (5, 4))]
        total = seen_as((2, 3, 4))(x)
        total.sum().item()
        return (total * 2).cpu()

    for _ in range(3):
        torch.testing.assert_close(program(DEVICE), program(CPU), rtol=1e-5, atol=1e-5)
    assert found == ([3], [])


def test_the_gradient_of_an_input_of_parallel_layers(found: Found):
    """It is a sum of products of matrices, in the input's own three dimensions."""

    def gradient(device: torch.device) -> torch.Tensor:
        torch.manual_seed(0)
        layers = [nn.Linear(8, 8).to(device) for _ in range(3)]
        x = torch.randn(2, 3, 8).to(device).requires_grad_()
        torch.stack([layer(x).tanh().sum() for layer in layers]).sum().backward()
        assert x.grad is not None
        x.grad.sum().item()
        return (x.grad * 2).cpu()

    for _ in range(3):
        torch.testing.assert_close(gradient(DEVICE), gradient(CPU), rtol=1e-5, atol=1e-5)
    assert found[0] == [3]


def test_rows_of_inputs_with_one_weight(found: Found):
    x, y, weight = numbers(0, 6, 4, 3), numbers(1, 5, 3), numbers(2, 7, 3)

    def program(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
        parts = [x[0], x[2], x[5], x[1, 1:3], y]
        return [part @ weight.t() for part in parts] + [x[3] @ weight[:3].t()]

    expected = program(x, y, weight)
    for _ in range(3):
        results = program(*(tensor.to(DEVICE) for tensor in (x, y, weight)))
        for result, wanted in zip(results, expected, strict=True):
            torch.testing.assert_close(result.cpu(), wanted, rtol=1e-5, atol=1e-5)
    assert set(found[1]) == {5}


def trained(device: torch.device, cell: str, steps: int) -> list[float]:
    """An unrolled cell on a moving part of a longer sequence; the sum of squares is the loss."""
    torch.manual_seed(0)
    kind = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}[cell]
    net, head = kind(5, 6).to(device), nn.Linear(6, 2).to(device)
    x = torch.randn(20, 3, 5).to(device)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.05)
    found = []
    for step in range(steps):
        state = x.new_zeros(3, 6)
        state = (state, x.new_zeros(3, 6)) if cell == "lstm" else state
        for place in range(6):
            state = net(x[step + place], state)
        loss = head(state[0] if cell == "lstm" else state).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_unrolled_cells(cell: str, found: Found):
    expected, results = trained(CPU, cell, 8), trained(DEVICE, cell, 8)
    torch.testing.assert_close(results, expected, rtol=1e-4, atol=1e-5)
    assert 6 in found[0]
    assert 6 in found[1] or cell == "rnn"  # whose products come with their bias


def test_no_compile_as_the_part_moves(found: Found):
    trained(DEVICE, "lstm", 4)
    before = made()
    trained(DEVICE, "lstm", 10)
    assert made() == before
