"""A number that decides no shape is an input of the executable from its second value on.

Every entry of PyTorch's operator database whose samples hold a number is called with four values
of it: the third and the fourth compile nothing, and all give what PyTorch's CPU gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fuse
from fuse.device import lazy
from fuse.trace import reach
from tests.coverage.operators import ENTRIES
from tests.device.helpers import DEVICE, compile_anew, made
from tests.device.recompilation.constant_numbers import CONSTANT, UNDEFINED
from tests.device.recompilation.number_arguments import (
    FORMS,
    Function,
    Moved,
    call,
    compiled_late,
    different,
    moved_numbers,
)
from tests.lanes import only_in
from tests.marks import slow_but

pytestmark = only_in("compiled", "accelerator", reason="counts what numbers that move compile")

PIECES = 24
QUICK = range(0, PIECES, 8)
NAMES = sorted(ENTRIES)


def _problems(name: str, form: str, function: Function, moved: Moved) -> list[str]:
    """What is wrong with one number of an entry."""
    late, found = compiled_late(function, moved)
    expected = list(moved.results)
    if moved.drawn:
        with fuse.FusedEager(backend="numpy"):
            expected = compiled_late(function, moved)[1]
    reason = CONSTANT.get(name, {}).get(moved.argument)
    problems = []
    if late and reason is None:
        problems.append(f"{late} executables for the third value and the fourth")
    if not late and reason is not None and form == "function":
        problems.append(f"it varies; it is in CONSTANT as {reason!r}")
    differences = (different(*pair) for pair in zip(found, expected, strict=True))
    problems += [one for one in differences if one is not None][:1]
    for sample, result in moved.special:
        difference = different(call(function, sample, DEVICE), result)
        if difference is not None:
            problems.append(f"{sample}: {difference}")
    return [f"{name} {moved.argument}: {problem}" for problem in problems]


def _all_problems(piece: int, form: str, patch: pytest.MonkeyPatch) -> str:
    """What is wrong with the numbers of a piece of the database, a line each."""
    found: list[str] = []
    for name in NAMES[piece::PIECES]:
        function = FORMS[form](ENTRIES[name])
        if function is not None:
            for moved in moved_numbers(ENTRIES[name], function):
                if moved.argument not in UNDEFINED.get(name, ()):
                    compile_anew(patch)  # another entry may be of the same operator
                    lazy.core().forget()
                    found += _problems(name, form, function, moved)
    return "\n".join(found)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("piece", slow_but(QUICK, range(PIECES)))
def test_a_number_of_an_operator(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _all_problems(piece, "function", monkeypatch) == ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("form", ["in-place", "out="])
@pytest.mark.parametrize("piece", range(PIECES))
def test_a_number_of_a_call_that_writes(
    piece: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _all_problems(piece, form, monkeypatch) == ""


# --- what the database's samples do not move --------------------------------------------

Call = Callable[[torch.Tensor, Any], torch.Tensor]
PARTS = (0.11, 0.23, 0.31, 0.42)
WHOLE = (0, 1, 2, 3)


def _gradient_of(part: Call) -> Call:
    def gradient(x: torch.Tensor, i: Any) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        part(leaf, i).square().sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    return gradient


def _batch_norm(x: torch.Tensor, number: float) -> torch.Tensor:
    mean, variance = torch.zeros(6).to(x.device), torch.ones(6).to(x.device)
    y = F.batch_norm(x, mean, variance, training=True, momentum=number, eps=number)
    return torch.cat([y.flatten(), mean, variance])


def _attention(x: torch.Tensor, number: float) -> torch.Tensor:
    return F.scaled_dot_product_attention(x[None], x[None], x[None], scale=number)


def _integers(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(24).reshape(4, 6).to(x.device)


MORE: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "layer_norm": (lambda x, n: F.layer_norm(x, (8,), eps=n), PARTS),
    "rms_norm": (lambda x, n: F.rms_norm(x, (8,), eps=n), PARTS),
    "group_norm": (lambda x, n: F.group_norm(x, 3, eps=n), PARTS),
    "batch_norm": (_batch_norm, PARTS),
    "attention": (_attention, PARTS),
    "attention's gradient": (_gradient_of(_attention), PARTS),
    "a negative power": (lambda x, n: x.abs() ** n, (-2.5, -1.5, -0.3, -3.2)),
    "nan_to_num": (lambda x, n: torch.nan_to_num(x / 0, n, 2 * n, -n), PARTS),
    "nan_to_num of integers": (lambda x, n: torch.nan_to_num(_integers(x), n), PARTS),
    "logit of integers": (lambda x, n: torch.logit(_integers(x), n), PARTS),
    "label smoothing": (
        lambda x, n: F.cross_entropy(x[0], _integers(x)[0], label_smoothing=n),
        PARTS,
    ),
    "ignored index": (lambda x, n: F.nll_loss(x[0], _integers(x)[0], ignore_index=n), WHOLE),
    "embedding": (
        lambda x, n: F.embedding(_integers(x)[0, :2], x[0].clone(), max_norm=n),
        PARTS,
    ),
    "power of integers": (lambda x, n: _integers(x) ** n, (2, 3, 4, 5)),
    "roll": (lambda x, n: torch.roll(x, (n, -n), (0, 1)), (1, 2, 3, -9)),
    "select's gradient": (_gradient_of(lambda x, i: x[i] * 2), (0, 1, -1, 3)),
    "slice's gradient": (_gradient_of(lambda x, i: x[:, i : i + 2] * 2), WHOLE),
    "slice's gradient from the end": (
        _gradient_of(lambda x, i: x[:, i : i + 2] * 2),
        (-6, -5, -4, -3),
    ),
    "out=": (
        lambda x, n: torch.add(x, x, alpha=n, out=torch.empty_like(x)),
        PARTS,
    ),
}


@pytest.mark.parametrize("backend", ["xla", "numpy"])
@pytest.mark.parametrize("name", MORE)
def test_a_number_of_a_call(name: str, backend: str) -> None:
    call, numbers = MORE[name]
    x = torch.randn(4, 6, 8)
    with fuse.FusedEager(backend=backend):
        found = [call(x.to(DEVICE), number).cpu() for number in numbers[:2]]
        before = made()
        found += [call(x.to(DEVICE), number).cpu() for number in numbers[2:]]
        assert made() == before or backend == "numpy"  # which compiles nothing
    for one, number in zip(found, numbers, strict=True):
        torch.testing.assert_close(one, call(x, number), rtol=1e-5, atol=1e-5)


REFUSED: dict[str, tuple[Call, tuple[Any, ...], Any]] = {
    "bernoulli": (lambda x, p: x.bernoulli_(p), PARTS, 1.5),
    "cauchy": (lambda x, n: x.cauchy_(0, n), PARTS, -1.0),
    "exponential": (lambda x, n: x.exponential_(n), PARTS, -1.0),
    "geometric": (lambda x, n: x.geometric_(n), PARTS, 1.0),
    "huber_loss": (lambda x, n: F.huber_loss(x, 2 * x, delta=n), PARTS, -1.0),
    "log_normal": (lambda x, n: x.log_normal_(0, n), PARTS, -1.0),
    "native_dropout": (lambda x, p: torch.native_dropout(x, p, True)[0], PARTS, 1.5),
    "normal": (lambda x, n: x.normal_(0, n), PARTS, -1.0),
    "normal_functional": (lambda x, n: torch.ops.aten.normal_functional(x, 0, n), PARTS, -1.0),
    "renorm": (lambda x, n: x.renorm(2, 0, n), PARTS, -1.0),
    "smooth_l1_loss": (lambda x, n: F.smooth_l1_loss(x, 2 * x, beta=n), PARTS, -1.0),
    "uniform from": (lambda x, n: x.uniform_(n, 1.0), PARTS, 2.0),
    "uniform to": (lambda x, n: x.uniform_(0.0, n), PARTS, -1.0),
    "random from": (lambda x, n: x.random_(n, 9), (1, 2, 3, 4), 9),
    "random to": (lambda x, n: x.random_(2, n), (5, 6, 7, 8), 1),
    "randint low": (lambda x, n: torch.randint(n, 9, (4,), device=x.device), (1, 2, 3, 4), 9),
    "randint high": (lambda x, n: torch.randint(2, n, (4,), device=x.device), (5, 6, 7, 8), 1),
    "randint_like low": (lambda x, n: torch.randint_like(x, n, 9), (1, 2, 3, 4), 9),
    "randint_like high": (lambda x, n: torch.randint_like(x, 2, n), (5, 6, 7, 8), 1),
    "kthvalue": (lambda x, n: x.kthvalue(n)[0], (1, 2, 3, 4), 9),
    "pow of integers": (lambda x, n: _integers(x) ** n, (2, 3, 4, 5), -1),
    "select_scatter": (lambda x, n: x.select_scatter(x[0], 0, n), WHOLE, 4),
    "select_backward": (
        lambda x, n: torch.ops.aten.select_backward(x[0], [4, 6, 8], 0, n),
        WHOLE,
        4,
    ),
    "divisor": (lambda x, n: F.avg_pool2d(x, 2, divisor_override=n), (1, 2, 3, 4), 0),
}
"""Operator, and argument where there are several -> the call, numbers it takes, and one that
PyTorch refuses."""


def test_every_argument_with_bounds_is_among_them() -> None:
    bounded = {*reach.ACCEPTED, *reach.RANKS}
    bounded |= {f"{one} {end}" for one, ends in reach.INTERVALS.items() for end in ends}
    assert bounded <= set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_a_known_stream_refuses_what_pytorch_does(name: str) -> None:
    call, numbers, unfit = REFUSED[name]
    x = torch.randn(4, 6, 8)
    with pytest.raises((RuntimeError, IndexError)) as expected:
        call(x.clone(), unfit)
    for number in numbers:
        call(x.to(DEVICE), number).cpu()
    before = made()
    call(x.to(DEVICE), numbers[1]).cpu()
    assert made() == before
    with pytest.raises(expected.type):
        call(x.to(DEVICE), unfit).cpu()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32], ids=str)
def test_integers_are_drawn_between_moving_ends(dtype: torch.dtype) -> None:
    counts = []
    for low in range(6):
        drawn = torch.randint(low, 12 - low, (4096,), dtype=dtype, device=DEVICE).cpu()
        counts.append(made())
        assert (int(drawn.min()), int(drawn.max())) == (low, 11 - low)
    assert counts[2:] == counts[1:2] * 4
