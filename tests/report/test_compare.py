"""``fuse.compare``: both backends agree, and a rule that is wrong is found where it is used."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import fuse
from fuse.backends.numpy.rules.registry import RULES, RuleContext
from fuse.report.difference import TOLERANCE, Summary, gap, tolerances
from tests.device.helpers import recorder

DEVICE = torch.device("tpu")


@pytest.fixture(autouse=True)
def backend() -> Iterator[None]:
    before = fuse.get_backend()
    yield
    fuse.set_backend(before)


def wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Let the NumPy rule of ``name`` return something else."""
    right = RULES[name]

    def rule(ctx: RuleContext, *args: Any, **kwargs: Any) -> Any:
        made = right(ctx, *args, **kwargs)
        return (change(made[0]), *made[1:]) if isinstance(made, tuple) else change(made)

    monkeypatch.setitem(RULES, name, rule)


def network() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(36, 10),
    )


def trainer(model: torch.nn.Module, steps: int) -> Callable[[], torch.Tensor]:
    """A function that trains a copy of ``model`` with a foreach AdamW and returns its weights."""
    model = copy.deepcopy(model).to(DEVICE)
    data, labels = torch.randn(8, 1, 8, 8).to(DEVICE), (torch.arange(8) % 10).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)

    def train() -> torch.Tensor:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), labels)
            assert loss.item() < 10  # a host read between forward and backward
            loss.backward()
            optimizer.step()
        return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])

    return train


# --- agreement ---------------------------------------------------------------


def test_a_training_step_agrees_and_trains_as_it_would_without() -> None:
    """Convolution, normalisation, dropout, backward, a foreach optimizer, a host read, traces."""
    model = network()
    torch.manual_seed(3)
    expected = trainer(model, 3)().cpu()
    torch.manual_seed(3)
    train, weights = trainer(model, 3), []
    found = fuse.compare(lambda: weights.append(train()))
    assert found.agrees, found
    assert found.first is None
    assert found.skipped == ()
    assert found.traces >= 6  # a host read and an optimizer step, three times
    assert found.operations > 150
    assert torch.equal(weights[0].cpu(), expected)
    expected_head = f"compared xla with numpy: {found.operations} operations in {found.traces} "
    assert str(found).startswith(expected_head + "traces\nno difference")


def test_it_follows_the_mode_and_the_backend(mode: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).relu().sum()

    x = torch.randn(3, 3).to(DEVICE)
    for name in fuse.config.BACKENDS:
        fuse.set_backend(name)
        found = fuse.compare(program, x, backends=("numpy", "xla"))
        assert found.agrees, found
        assert found.backends == ("numpy", "xla")
        assert found.operations == 3
        assert found.traces == (1 if mode == "fused" else 3)


def test_views_writes_and_moving_offsets() -> None:
    """In-place through views, ``out=``, reinterpreted bytes, offsets that vary, memory unset."""

    def program(base: torch.Tensor) -> torch.Tensor:
        cache = torch.empty(6, 4, device=DEVICE)
        for row in range(4):
            cache[row] = base[row] * row
        cache[4:].zero_()
        cache.t()[2].mul_(2).add_(1)
        torch.add(base[:2, 1:3], 1, out=base[2:4, :2])
        bits = base.view(torch.int32) & -65536
        bits[0].fill_(7)
        return cache.sum() + bits.view(torch.float32).cumsum(1).amax()

    for _ in range(3):  # from the second row on, and then from the first, offsets vary
        found = fuse.compare(program, torch.randn(4, 4).to(DEVICE))
        assert found.agrees, found
        assert found.operations >= 12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_random_operators_draw_the_same(dtype: torch.dtype) -> None:
    def program() -> list[torch.Tensor]:
        x = torch.rand(64, device=DEVICE, dtype=dtype)
        noise = torch.empty_like(x).normal_(1, 2)
        order = torch.randperm(20, device=DEVICE)
        return [F.dropout(x, 0.4), noise, order, torch.bernoulli(x), torch.multinomial(x, 5)]

    for _ in range(2):
        found = fuse.compare(program)
        assert found.agrees, found
        assert found.operations == 6
        assert found.skipped == ()


def test_what_would_run_uncompiled_is_compared_too() -> None:
    with recorder(tier="uncompiled"):
        found = fuse.compare(lambda: [torch.ones(n, device=DEVICE).exp() for n in range(1, 6)])
    assert found.agrees
    assert found.operations == 10


def test_an_empty_program_says_so() -> None:
    found = fuse.compare(lambda: torch.ones(2) + 1)
    assert found.agrees
    assert found.operations == 0
    assert "nothing was recorded: does the program use tensors on the tpu device?" in str(found)


# --- differences -------------------------------------------------------------


def line_of(function: Callable[..., Any], number: int) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + number}"


def test_a_wrong_rule_is_found_with_line_and_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong(monkeypatch, "relu", lambda made: made + np.float32([[0, 0], [0, 0.5]]))

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        z = y.relu()
        return (z * 2).relu().sum()

    x = torch.tensor([[1.0, -3.0], [float("nan"), 2.0]]).to(DEVICE)
    found = fuse.compare(program, x)
    assert not found.agrees
    assert found.operations == 2
    first = found.first
    assert first is not None
    assert (first.operator, first.operation, first.trace) == ("aten::relu", 1, 0)
    assert first.source == line_of(program, 2)
    assert (first.dtype, first.shape, first.result) == ("float32", (2, 2), 0)
    assert first.gap is not None
    assert (first.gap.elements, first.gap.total) == (1, 4)
    assert (first.gap.absolute, first.gap.absolute_index) == (0.5, (1, 1))
    assert first.gap.absolute_values == (3.0, 3.5)
    assert first.gap.relative == pytest.approx(1 / 6)
    assert first.inputs == (Summary("%1", "float32", (2, 2), -2.0, 3.0, 1.0, 1),)
    assert str(found) == (
        "compared xla with numpy: 2 operations in 1 trace\n"
        "operation 1 of trace 0, aten::relu, differs\n"
        "  %2:float32[2,2] = relu(%1:float32[2,2])\n"
        f"  at: {first.source}\n"
        "  result 0: float32[2,2], 1 of 4 elements are farther apart than "
        "1e-05 + 1.3e-06 * |xla|\n"
        "  greatest absolute difference: 0.5 at (1, 1): 3.0 on xla, 3.5 on numpy\n"
        "  greatest relative difference: 0.166667 at (1, 1): 3.0 on xla, 3.5 on numpy\n"
        "  input %1:float32[2,2]  min -2  max 3  mean 1  1 non-finite"
    )


def test_tolerances_may_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong(monkeypatch, "exp", lambda made: made * np.float32(1.001))
    x = torch.ones(3).to(DEVICE)
    assert fuse.compare(torch.exp, x, rtol=1e-2, atol=0.0).agrees
    assert not fuse.compare(torch.exp, x, rtol=1e-4, atol=0.0).agrees
    assert not fuse.compare(torch.exp, x).agrees


def test_one_difference_does_not_cascade(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first backend makes feeds both: past the tolerance of one, the next agrees."""
    wrong(monkeypatch, "exp", lambda made: made + np.float32(0.01))

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() * 1e6).round()

    x = torch.ones(3).to(DEVICE)
    assert fuse.compare(program, x, rtol=0.0, atol=0.02).agrees
    found = fuse.compare(program, x, backends=("numpy", "xla"), rtol=0.0, atol=0.02)
    assert found.agrees
    assert found.operations == 3


def test_a_backward_pass_is_at_the_line_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong(monkeypatch, "tanh_backward", lambda made: -made)

    def program() -> None:
        loss = x.tanh().sum()
        loss.backward()

    x = torch.ones(3).to(DEVICE).requires_grad_()
    found = fuse.compare(program).first
    assert found is not None
    assert found.operator == "aten::tanh_backward"
    assert found.source == line_of(program, 2)


def test_a_write_through_a_view_is_shown_as_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """The region written, at its varying offset, and the scalar that varies."""
    wrong(monkeypatch, "mul.Tensor", np.negative)

    def program(row: int, factor: float) -> torch.Tensor:
        x = torch.arange(12, dtype=torch.float32, device=DEVICE).view(4, 3)
        x[row].mul_(factor)
        return x

    for row, factor in ((0, 2.0), (1, 3.0), (2, 4.0)):
        found = fuse.compare(program, row, factor).first
        assert found is not None
    assert (found.operator, found.shape) == ("aten::mul.out", (3,))
    assert found.gap is not None
    assert found.gap.absolute_values == (32.0, -32.0)
    assert found.gap.absolute_index == (2,)
    assert found.inputs[0].minimum == 6.0
    assert found.numbers == ("number #1 = 4.0",)
    assert str(found).endswith("\n  with number #1 = 4.0")


def test_a_difference_beside_the_region_written_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    write = fuse.backends.numpy.views.write

    def careless(*args: Any) -> np.ndarray:
        made = write(*args)
        made.reshape(-1)[0] = 9
        return made

    monkeypatch.setattr(fuse.backends.numpy.interpret.views, "write", careless)
    x = torch.zeros(4).to(DEVICE)
    found = fuse.compare(lambda: x[2:].add_(1)).first
    assert found is not None
    assert found.gap is not None
    assert (found.gap.total, found.gap.absolute_index) == (4, (0,))


def test_a_random_operator_shows_seed_and_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong(monkeypatch, "native_dropout", lambda made: made * 0)
    torch.manual_seed(11)
    x = torch.ones(3).to(DEVICE)
    found = fuse.compare(lambda: F.dropout(x, 0.1)).first
    assert found is not None
    assert found.operator == "aten::native_dropout"
    assert found.numbers[-1].startswith("seed 11, offset ")


def test_a_rule_that_fails_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(ctx: RuleContext, x: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("nothing to divide")

    monkeypatch.setitem(RULES, "sin", broken)
    found = fuse.compare(torch.sin, torch.ones(3).to(DEVICE))
    assert not found.agrees
    assert found.first is not None
    assert found.first.gap is None
    assert found.first.failure == "numpy raised ZeroDivisionError: nothing to divide"
    assert "aten::sin, failed\n" in str(found)


# --- operators that are not compared -----------------------------------------


def test_an_operator_without_a_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only one backend can run is skipped, and its value still feeds the rest."""
    numpy = fuse.backends.registry.get_backend("numpy")
    reject = numpy.reject
    monkeypatch.setattr(
        numpy, "reject", lambda node: "no such thing" if node.op == "cos" else reject(node)
    )

    def program(x: torch.Tensor) -> torch.Tensor:
        return x.cos().cos().sum()

    for backends in (("xla", "numpy"), ("numpy", "xla")):
        found = fuse.compare(program, torch.ones(3).to(DEVICE), backends=backends)
        assert found.agrees
        assert found.operations == 1
        (skipped,) = found.skipped
        assert (skipped.operator, skipped.count) == ("aten::cos", 2)
        assert str(found).endswith(
            "skipped aten::cos (2 times): numpy cannot run it: no such thing"
        )


def test_what_ran_on_the_host_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")

    engine = fuse.device.lazy.engine()
    reject = engine.planning.support.reject
    monkeypatch.setattr(
        engine.planning.support, "reject", lambda node: "no" if node.op == "erfc" else reject(node)
    )
    found = fuse.compare(lambda x: (x.sin() + 0.5).erfc().exp(), torch.ones(5).to(DEVICE))
    assert found.agrees
    assert (found.operations, found.traces) == (3, 2)
    assert str(found).endswith("\nskipped aten::erfc: ran on the host: xla cannot run it")


# --- errors ------------------------------------------------------------------


def test_an_unknown_backend_lists_the_valid_ones() -> None:
    with pytest.raises(fuse.errors.ConfigError, match="unknown backend 'tpu': the valid ones are "
                       "'xla', 'numpy'\\.\n  hint: use one of xla, numpy"):  # fmt: skip
        fuse.compare(torch.ones, 2, backends=("xla", "tpu"))


@pytest.mark.parametrize("backends", ["xla", ("xla",), ("xla", "numpy", "xla")])
def test_backends_are_two(backends: Any) -> None:
    with pytest.raises(fuse.errors.ConfigError, match="hint: choose two of xla, numpy"):
        fuse.compare(torch.ones, 2, backends=backends)


def test_tolerances_come_in_pairs() -> None:
    with pytest.raises(fuse.errors.ConfigError, match="rtol and atol are given together"):
        fuse.compare(torch.ones, 2, rtol=1e-3)


def test_an_error_of_the_program_is_the_programs() -> None:
    x = torch.ones(3).to(DEVICE)
    with pytest.raises(RuntimeError, match="size"):
        fuse.compare(lambda: x + torch.ones(2).to(DEVICE))
    assert fuse.device.lazy.engine().inspector is None


# --- arrays ------------------------------------------------------------------


def test_tolerances_are_those_of_pytorch() -> None:
    for dtype, pair in TOLERANCE.items():
        expected = torch.testing._comparison.get_tolerances(
            getattr(torch, dtype), rtol=None, atol=None
        )
        assert pair == expected
        assert tolerances(dtype, None, None) == expected
        assert tolerances(dtype, 0.5, 0.25) == (0.5, 0.25)
    assert tolerances("int64", 0.5, 0.5) == (0.0, 0.0)


def test_infinities_and_nans() -> None:
    inf, nan = np.inf, np.nan
    same = np.array([inf, -inf, nan, 1.0])
    assert gap(same, same.copy(), 0.0, 0.0) is None
    for other in ([-inf, -inf, nan, 1.0], [inf, -inf, 0.0, 1.0], [1e30, -inf, nan, 1.0]):
        found = gap(same, np.array(other), 1.0, 1.0)
        assert found is not None
        assert (found.elements, found.absolute, found.relative) == (1, inf, inf)
    assert gap(np.array([0.0]), np.array([-0.0]), 0.0, 0.0) is None
    assert gap(np.zeros((0, 3)), np.zeros((0, 3)), 0.0, 0.0) is None


def test_integers_differ_exactly() -> None:
    one, other = np.array([2**62, -(2**63)]), np.array([2**62 + 1, 2**63 - 1])
    found = gap(one, other, 0.0, 0.0)
    assert found is not None
    assert found.elements == 2
    assert found.absolute == float(2**64 - 1)
    assert found.absolute_values == (-(2**63), 2**63 - 1)
    assert gap(np.array([True]), np.array([False]), 0.0, 0.0) is not None


def test_half_and_complex_numbers() -> None:
    one = np.array([1, 2], ml_dtypes.bfloat16)
    assert gap(one, one + one * ml_dtypes.bfloat16(2**-7), 1.6e-2, 0.0) is None
    found = gap(np.array([3 + 4j]), np.array([3 + 4.5j]), 1e-3, 0.0)
    assert found is not None
    assert (found.absolute, found.relative) == (0.5, 0.1)


def test_summaries() -> None:
    assert str(Summary.of("%2", np.array([[1, 5]]))) == (
        "%2:int64[1,2]  min 1  max 5  mean 3  0 non-finite"
    )
    assert str(Summary.of("%2", np.array([3 + 4j, np.inf]))) == (
        "%2:complex128[2]  min 5  max 5  mean 5 of the moduli  1 non-finite"
    )
    assert str(Summary.of("%2", np.zeros((0, 2), np.float32))) == (
        "%2:float32[0,2]  no finite element, 0 non-finite"
    )
