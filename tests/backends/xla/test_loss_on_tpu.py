"""The loss over classes as a TPU's programs have it: one reduction, no gather."""

from __future__ import annotations

import jax
import pytest
import torch

from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules.registry import RuleContext
from fuse.trace.spec import TensorSpec
from tests.backends.rule_harness import RULES, to_array, to_tensor
from tests.backends.test_rules_loss import IGNORED, REDUCTIONS, randn


def on_tpu(
    x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int
) -> list[torch.Tensor]:
    shape = target.shape if reduction == 0 else ()
    specs = (TensorSpec("float32", tuple(shape)), TensorSpec("float32", ()))
    context = RuleContext(specs, "float32", platform=Platform("tpu"))
    with jax.enable_x64(True):
        weights = None if weight is None else to_array(weight)
        arguments = (to_array(x), to_array(target), weights, reduction, IGNORED)
        return list(map(to_tensor, RULES["nll_loss_forward"](context, *arguments)))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [True, False])
def test_a_tpu_finds_the_same_loss_without_a_gather(reduction: int, weighted: bool) -> None:
    weight = torch.tensor([0.5, 1.0, 2.0]) if weighted else None
    x, target = randn(4, 3), torch.tensor([0, 2, IGNORED, 1])
    x[0, 1] = torch.inf  # of a class that no sample has
    expected = torch.ops.aten.nll_loss_forward(x, target, weight, reduction, IGNORED)
    found = on_tpu(x, target, weight, reduction)
    assert all(map(torch.allclose, found, expected))


@pytest.mark.parametrize("bad", [7, -3])
@pytest.mark.parametrize("reduction", [1, 2])
def test_a_target_that_is_no_class_gives_nan_on_a_tpu(bad: int, reduction: int) -> None:
    loss, _ = on_tpu(randn(2, 3), torch.tensor([bad, 1]), None, reduction)
    assert loss.isnan()
