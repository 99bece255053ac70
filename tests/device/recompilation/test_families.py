"""Families: sizes that move run at those of buckets, and give what the CPU gives at every size.

Padding is poison here: NaN, and integers that are no index. What depends on it is not the CPU's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import fuse
from fuse.device import lazy
from fuse.errors import ExecutionError
from fuse.families import family
from tests.device.helpers import DEVICE
from tests.device.recompilation import size_programs
from tests.device.recompilation.family_helpers import (
    LENGTHS,
    Unary,
    agrees,
    outcome,
    plans,
    reasons,
)
from tests.fuzz import sizes
from tests.lanes import only_in

pytestmark = [
    only_in("accelerator", reason="where memory is the host's, sizes that move run on it"),
    pytest.mark.usefixtures("poisoned_padding"),
]


# ---- programs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", size_programs.PROGRAMS)
def test_a_program_is_right_at_every_step_and_compiles_little(name: str) -> None:
    program, most = size_programs.PROGRAMS[name]
    expected = program(torch.device("cpu"))
    before = fuse.stats()["compiles"]
    found = program(DEVICE)
    compiled = fuse.stats()["compiles"] - before
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert plans() > 0 and reasons() == {}
    assert compiled <= most, (compiled, most)


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_compiled_function_that_trains(dynamic: bool | None) -> None:
    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, backend="tpu", dynamic=dynamic)

    torch._dynamo.reset()
    expected = size_programs.language_model(torch.device("cpu"))
    found = size_programs.language_model(DEVICE, compiled)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert plans() > 0 and reasons() == {}


def test_what_was_sent_is_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Any] = []
    engine_arrays = lazy.engine().arrays
    read = engine_arrays.read
    monkeypatch.setattr(engine_arrays, "read", lambda array: reads.append(array) or read(array))
    for length in LENGTHS:
        if plans() == 1:
            reads.clear()  # before a process pads its first batch, none is kept on the host
        outcome(lambda x: (x + 1).sum(1) * 2, DEVICE, length).sum().item()
    assert len(reads) == plans() - 1 > 0  # the numbers that are asked for, and no batch


@pytest.mark.parametrize("seed", range(5))
def test_a_random_program_is_right_at_every_size(seed: int) -> None:
    for found, expected in sizes.beside_the_cpu(seed, DEVICE):
        torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-5, equal_nan=True)


# ---- operators --------------------------------------------------------------------------------

PROVEN: dict[str, Unary] = {
    "elementwise": lambda x: (x * 2).relu() + x.exp(),
    "its own length": lambda x: (x * x.shape[1], x // x.shape[1]),
    "softmax of rows that a mask empties": lambda x: torch.ops.aten._safe_softmax(
        x.masked_fill(x > 0, float("-inf")), 1),
    "sums of what padding is not neutral to": lambda x: (x + 1).sum(1),
    "mean": lambda x: (x.mean(1), x.mean((0, 1)), x.mean()),
    "extremes": lambda x: (x.amax(1), x.neg().exp().amin(1), x.max(), x.logsumexp(1)),
    "infinite padding": lambda x: (1 / x).sum(1),
    "norms": lambda x: (x.norm(dim=1), x.norm(), (x > 0).any(1), (x > 9).all(1)),
    "softmax": lambda x: x.softmax(1) + x.log_softmax(1),
    "the place of the largest": lambda x: (x.argmax(1), *x.max(1), *x.topk(2, 1)),
    "contracted": lambda x: x.transpose(1, 2) @ (x * 3),
    "scores": lambda x: (x @ x.transpose(1, 2)).tril().softmax(-1) @ x,
    "linear": lambda x: F.linear(x, torch.ones(3, 4, device=x.device)),
    "flattened": lambda x: x.reshape(-1, 4).softmax(0).reshape(x.shape),
    "flattened the other way": lambda x: x.transpose(0, 1).reshape(-1, 4) + 1,
    "positions": lambda x: x + torch.arange(x.shape[1], device=x.device)[:, None],
    "the last": lambda x: (x[:, -1] * 2, x[:, -2:] * 2, x[:, :2]),
    "shifted": lambda x: x[:, 1:] - x[:, :-1],
    "growing by one": lambda x: torch.cat([x, x[:, :1] * 0 + 7, x], 1).cumsum(1),
    "padded by hand": lambda x: torch.cat([x.new_zeros(3, 1, 4), x], 1),
    "embedded": lambda x: F.embedding(x.argmax(-1), torch.eye(4, device=x.device)),
    "chosen": lambda x: (x.gather(1, x.argsort(-1)[..., :1].clamp(max=1).expand(-1, -1, 4)),
                         x[:, torch.tensor([2, 0], device=x.device)]),
    "masked": lambda x: x.masked_fill(torch.arange(x.shape[1], device=x.device)[:, None] > 2, 5),
    "written": lambda x: x.clone().mul_(2).add_(x),
    "a beginning of what is fixed": lambda x: x + torch.linspace(
        0, 1, 64, device=x.device).reshape(64, 1)[: x.shape[1]],
    "halves": lambda x: torch.stack([x.half(), x.half() + 1], -1).float().sum(-1),
    "integers": lambda x: ((x * 9).long().cumsum(1), (x * 9).long().amax(1)),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "causal attention": lambda x: F.scaled_dot_product_attention(
        x[None], x[None], x[None], is_causal=True),
    "one query": lambda x: F.scaled_dot_product_attention(x[None, :, :1], x[None], x[None]),
    "losses": lambda x: (F.mse_loss(x, x * 2), F.smooth_l1_loss(x, x + 1), F.cross_entropy(
        x.reshape(-1, 4), x.argmax(-1).reshape(-1))),
    "examples convolved": lambda x: F.conv1d(
        x.transpose(0, 1), torch.ones(2, 3, 2, device=x.device)),
    "places convolved": lambda x: F.conv1d(
        x.transpose(1, 2), torch.linspace(0, 1, 24, device=x.device).reshape(2, 4, 3)),
    "with steps and padding": lambda x: F.conv1d(
        x.transpose(1, 2), torch.linspace(0, 1, 24, device=x.device).reshape(2, 4, 3),
        None, 2, 1).tanh().sum(-1),
    "apart": lambda x: F.conv1d(x.transpose(1, 2).reshape(1, 12, -1), torch.linspace(
        0, 1, 12, device=x.device).reshape(12, 1, 1) .expand(12, 1, 2), None, 1, 2, 2, 12),
    "one by one in lists": lambda x: tuple(torch._foreach_add([x, x * 2], 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVEN)
def test_what_is_proven_runs_at_the_sizes_of_buckets(name: str) -> None:
    agrees(PROVEN[name])
    assert plans() > 0 and reasons() == {}


BOTH: dict[str, Unary] = {
    "sums of the last": lambda x: (x[:, -1].sum(0), x[:, -1].mean(), x[:, 1:].sum((0, 1))),
    "losses of the last": lambda x: F.mse_loss(x[:, -1], x[:, 0] * 2),
    "products of the last": lambda x: x[:, -1].t() @ x[:, 0],
    "the last behind the first": lambda x: torch.cat([x[:, -1], x[:, 0] * 2]) + 0,
    "the last of the last": lambda x: x[-1].sum(0) + x[-1, -1],
    "drawn for the last": lambda x: (F.dropout(x[:, -1], 0.5) * 0).sum(0),
}


@pytest.mark.parametrize("name", BOTH)
def test_what_begins_where_a_size_that_moves_ends(name: str) -> None:
    """Its offset is a word of the trace, wherever it is read: by the call, or by what fills it."""
    for batch, length in (*sizes.SIZES, *((batch + 1, length) for batch, length in sizes.SIZES)):
        x = torch.randn(batch, length, 4, generator=torch.Generator().manual_seed(length))
        expected, found = BOTH[name](x), BOTH[name](x.to(DEVICE))
        pairs = (
            zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
        )
        for one, other in pairs:
            torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5)
    assert plans() > 0 and reasons() == {}


FLATTENED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "losses": lambda x, y: F.mse_loss(x.flatten(0, 1), y),
    "labels": lambda x, y: F.cross_entropy(x.flatten(0, 1), y.argmax(-1)),
    "products": lambda x, y: x.flatten(0, 1).t() @ y,
    "products added": lambda x, y: torch.addmm(y, x.flatten(0, 1), torch.eye(4, device=x.device)),
    "added by index": lambda x, y: torch.zeros(4, 4, device=x.device).index_add(
        0, y.argmax(-1), x.flatten(0, 1)),
    "gathered": lambda x, y: x.flatten(0, 1).gather(1, y.argmax(-1)[:, None]),
}  # fmt: skip


@pytest.mark.parametrize("name", FLATTENED)
def test_what_the_host_flattened_is_not_taken_for_what_the_device_did(name: str) -> None:
    """Four rows of a moving length have padding behind each, and as many numbers behind all."""
    for length in LENGTHS:
        x, y = torch.randn(2, 4, length, 4, generator=torch.Generator().manual_seed(length))
        y = y.flatten(0, 1)
        given = x.requires_grad_(), x.detach().to(DEVICE).requires_grad_()
        expected, found = (FLATTENED[name](one, y.to(one.device)) for one in given)
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
        expected.square().sum().backward()
        found.square().sum().backward()
        grads = given[1].grad.cpu(), given[0].grad
        torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)  # of sums of hundreds


REFUSED: dict[str, tuple[Unary, str]] = {
    "no rule": (
        lambda x: x.median(1).values, r"aten::median.dim at .*test_families.py:\d+: no rule"),
    "normalised over": (lambda x: F.layer_norm(x, x.shape[1:]), "normalises over a size"),
    "statistics of batches": (lambda x: F.batch_norm(
        x.transpose(1, 2), None, None, training=True), "its statistics count padding"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_proven_runs_at_its_own_sizes_and_says_why(name: str) -> None:
    function, reason = REFUSED[name]
    agrees(function)
    (found,) = reasons()
    assert re.search(reason, found), found


# ---- values with room -------------------------------------------------------------------------


def made_with_room(length: int = 9) -> torch.Tensor:
    """A result of a family: a buffer with room behind its value."""
    for size in (4, 6, length):
        x = (torch.arange(size * 2.0).reshape(2, size).to(DEVICE) * 2).exp2()
        torch.tpu.synchronize()
    assert plans() > 0
    return x


EXPECTED = (torch.arange(18.0).reshape(2, 9) * 2).exp2()


READS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "copied": lambda x: x.cpu(),
    "a number": lambda x: torch.tensor([[value.item() for value in row] for row in x]),
    "a list": lambda x: torch.tensor(x.tolist()),
    "read by a program of its own": lambda x: (x.flip(1).flip(1) + 0).cpu(),
    "by DLPack": lambda x: torch.tensor(np.from_dlpack(x.cpu())),
    "as JAX's": lambda x: torch.tensor(np.asarray(fuse.to_jax(x))),
    "saved": lambda x: torch.clone(x).cpu(),
    "cloned in another order": lambda x: x.t().contiguous().t().cpu(),
    "its storage": lambda x: torch.tensor(x.untyped_storage().cpu().tolist(), dtype=torch.uint8)
    .view(torch.float32).view(2, 9),
}  # fmt: skip


@pytest.mark.parametrize("how", READS)
def test_a_value_with_room_is_read_without_it(how: str) -> None:
    torch.testing.assert_close(READS[how](made_with_room()), EXPECTED)


def test_a_value_with_room_is_written() -> None:
    x = made_with_room()
    x[0, 3] = 5
    x += 1
    expected = EXPECTED.clone()
    expected[0, 3] = 5
    torch.testing.assert_close(x.cpu(), expected + 1)


def test_a_value_with_room_is_moved_between_modes_and_backends() -> None:
    x = made_with_room()
    for mode in (fuse.DebugEager, fuse.StrictEager):
        with mode():
            torch.testing.assert_close((x * 2).cpu(), EXPECTED * 2)
    with fuse.FusedEager(backend="numpy"):
        torch.testing.assert_close((x * 2).cpu(), EXPECTED * 2)
    torch.testing.assert_close((x * 2).cpu(), EXPECTED * 2)


def test_numbers_are_drawn_as_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> list[torch.Tensor]:
        lazy.core().forget()
        torch.manual_seed(3)
        found = []
        for batch, length in ((3, 5), (4, 7), (5, 9), (6, 18), (3, 5)):
            x = torch.ones(batch, length, 2, device=DEVICE)
            y = F.dropout(x, 0.5) + torch.rand(batch, length, device=DEVICE)[..., None]
            y = y + torch.empty_like(x).normal_() + torch.randn_like(x)
            found += [y.cpu(), torch.rand(3, device=DEVICE).cpu()]
        return found

    padded = drawn()
    assert plans() > 0 and reasons() == {}
    monkeypatch.setattr(lazy.engine().planning.families, "padded", lambda trace: None)
    for one, other in zip(padded, drawn(), strict=True):
        assert torch.equal(one, other)


def test_debug_reads_values_without_their_room() -> None:
    index = (made_with_room() * 0).long()[0]
    weight = torch.eye(9).to(DEVICE)
    F.embedding(index, weight).sum().item()
    with fuse.DebugEager(check="nan"):
        assert F.embedding(index, weight).sum().item() == 9
        with pytest.raises(IndexError, match="index out of range"):
            F.embedding(index + 9, weight)


@pytest.mark.parametrize("mode", [fuse.StrictEager, fuse.DebugEager])
def test_single_operations_run_at_their_own_sizes(mode: Callable[[], Any]) -> None:
    """Else those of a model's layers would seem to move."""
    with mode():
        agrees(lambda x: (x + 1).sum(1))
    assert plans() == 0


def test_the_weights_of_a_model_are_no_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family, "FROM_OF_FEW", 8)
    for width in range(2, 8):
        torch.nn.Linear(width, width + 3, device=DEVICE).weight.sum().item()
    assert plans() == 0


def test_where_a_bucket_is_not_compiled_sizes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    planning = lazy.engine().planning
    bound = planning._bound

    def refusing(trace: Any, *rest: Any) -> Any:
        if any("fuse::" in node.op for node in trace.nodes):
            raise ExecutionError("too large for this compiler")
        return bound(trace, *rest)

    monkeypatch.setattr(planning, "_bound", refusing)
    agrees(lambda x: (x + 1).sum(1) * 3)
    assert plans() == 0 and reasons() == {"too large for this compiler": len(LENGTHS) - 2}


def test_a_report_says_sizes_and_room() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).sum(1).cpu()

    agrees(function)
    told = str(fuse.explain(function, torch.randn(3, 11, 4).to(DEVICE)))
    assert "family: sizes that move are 11 in room for 16" in told
