"""Rules of fused optimizer steps, scaled gradients and the CTC loss agree with PyTorch's CPU."""

from __future__ import annotations

import math
from typing import Any

import jax
import pytest
import torch

from fuse.backends.xla.rules.registry import RuleContext
from fuse.trace.evaluate import flatten
from tests.backends.rule_harness import RULES, bind, find, run, to_array, to_tensor, unreached

ADAM = {
    "beta1": 0.9,
    "beta2": 0.99,
    "weight_decay": 0.1,
    "eps": 1e-8,
    "amsgrad": False,
    "maximize": False,
}
SGD = {
    "weight_decay": 0.1,
    "momentum": 0.9,
    "dampening": 0.2,
    "nesterov": False,
    "maximize": False,
    "is_first_step": False,
}
ADAGRAD = {"lr_decay": 0.1, "weight_decay": 0.1, "eps": 1e-10, "maximize": False}


def tensors(seed: int, positive: bool = False) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    found = [torch.randn(shape, generator=generator) for shape in ((3, 4), (5,))]
    return [x.abs() for x in found] if positive else found


def steps() -> list[torch.Tensor]:
    return [torch.tensor(3.0), torch.tensor(3.0)]


def with_rate(name: str) -> list[tuple[str, Any]]:
    return [(name, 0.05), (f"{name}.tensor_lr", torch.tensor(0.05))]


UNSCALED = {"grad_scale": torch.tensor(4.0), "found_inf": torch.tensor(0.0)}
OVERFLOWN = {"grad_scale": torch.tensor(4.0), "found_inf": torch.tensor(1.0)}


def check_step(name: str, lists: tuple[list[torch.Tensor], ...], **options: Any) -> None:
    """Compare with the kernel in place: it writes what the rule returns, in the same order."""
    base, _, overload = name.partition(".")
    copies = [[x.clone() for x in values] for values in lists]
    find(f"{base}_.{overload}".rstrip("."))(*copies, **options)
    arrays = [[to_array(x) for x in values] if values else () for values in lists]
    plain = {k: to_array(v) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    _, keyword = bind(find(name), (), plain)
    with jax.enable_x64(True):
        results = RULES[name](RuleContext((), "float32"), *arrays, **keyword)
    found = [to_tensor(array) for array in flatten(results)]
    wanted = [x for values in copies for x in values][: len(found)]
    assert len(found) >= 4
    for result, want, old in zip(found, wanted, [x for v in lists for x in v], strict=False):
        torch.testing.assert_close(result, want, rtol=1e-5, atol=1e-6)
        assert result.dtype == old.dtype


@pytest.mark.parametrize(("name", "rate"), [*with_rate("_fused_adam"), *with_rate("_fused_adamw")])
@pytest.mark.parametrize("extra", [{}, UNSCALED, OVERFLOWN, {"maximize": True}])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam(name: str, rate: Any, extra: dict[str, Any], amsgrad: bool) -> None:
    maxima = tensors(4, positive=True) if amsgrad else []
    lists = (tensors(0), tensors(1), tensors(2), tensors(3, positive=True), maxima, steps())
    check_step(name, lists, lr=rate, **(ADAM | {"amsgrad": amsgrad} | extra))


@pytest.mark.parametrize(("name", "rate"), with_rate("_fused_sgd"))
@pytest.mark.parametrize(
    "extra",
    [{}, UNSCALED, OVERFLOWN, {"maximize": True}, {"nesterov": True, "dampening": 0.0},
     {"is_first_step": True}],
)  # fmt: skip
def test_sgd(name: str, rate: Any, extra: dict[str, Any]) -> None:
    check_step(name, (tensors(0), tensors(1), tensors(2)), lr=rate, **(SGD | extra))


@pytest.mark.parametrize(("name", "rate"), with_rate("_fused_adagrad"))
@pytest.mark.parametrize("extra", [{}, UNSCALED, OVERFLOWN, {"maximize": True}])
def test_adagrad(name: str, rate: Any, extra: dict[str, Any]) -> None:
    lists = (tensors(0), tensors(1), tensors(2, positive=True), steps())
    check_step(name, lists, lr=rate, **(ADAGRAD | extra))


@pytest.mark.parametrize("value", [1.0, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_gradients_are_unscaled_and_checked(dtype: torch.dtype, value: float) -> None:
    grads = [torch.tensor([3.0, 1.7], dtype=dtype), torch.tensor([[value]], dtype=dtype)]
    arguments = grads, torch.zeros(1), torch.tensor([0.3])
    found, wanted = run("_amp_foreach_non_finite_check_and_unscale", *arguments)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("scale", [1024.0, 3e38])
@pytest.mark.parametrize("steps_before", [0, 1])
@pytest.mark.parametrize("found_inf", [0.0, 1.0])
def test_the_scale_of_gradients_moves(scale: float, steps_before: int, found_inf: float) -> None:
    state = torch.tensor([scale]), torch.tensor([steps_before], dtype=torch.int32)
    arguments = *state, torch.tensor([found_inf]), 2.0, 0.5, 2
    found, wanted = run("_amp_update_scale", *arguments)
    assert [one.tolist() for one in found] == [one.tolist() for one in wanted]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ctc(packed: bool, zero_infinity: bool, dtype: torch.dtype) -> None:
    """Full, shorter, repeated, empty and impossible targets."""
    inputs, lengths = [7, 5, 6, 4, 1], [3, 2, 2, 0, 3]
    log_probs = torch.randn(7, 5, 4, dtype=dtype).log_softmax(2)
    rows = torch.tensor([[1, 2, 3], [2, 2, 0], [3, 3, 0], [0, 0, 0], [1, 2, 3]])
    targets = torch.cat([row[:n] for row, n in zip(rows, lengths, strict=True)]) if packed else rows
    arguments = (log_probs, targets, inputs, lengths, 0, zero_infinity)
    (loss, alpha), (wanted, wanted_alpha) = run("_ctc_loss", *arguments)
    torch.testing.assert_close(loss, wanted)
    for row, (time, length) in enumerate(zip(inputs, lengths, strict=True)):
        own = (row, slice(time), slice(2 * length + 1))
        torch.testing.assert_close(alpha[own], wanted_alpha[own])
        kept = wanted_alpha[own].clone()
        wanted_alpha[row] = -math.inf  # what PyTorch leaves uninitialised
        wanted_alpha[own] = kept
    grad = torch.rand(5, dtype=dtype)
    backward = (*arguments[:4], wanted, wanted_alpha, 0, zero_infinity)
    (slope,), (wanted_slope,) = run("_ctc_loss_backward", grad, *backward)
    torch.testing.assert_close(slope, wanted_slope, equal_nan=True, rtol=1e-4, atol=1e-5)


def test_every_rule_is_reached() -> None:
    assert unreached("amp", "fused_optimizers", "ctc") == set()
