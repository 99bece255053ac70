"""Losses and pairwise distances: rules against PyTorch's CPU kernels, forward and backward."""

from __future__ import annotations

import jax
import pytest
import torch

from fuse.backends.xla.rules.registry import RuleContext
from fuse.trace.spec import TensorSpec
from tests.backends.rule_harness import RULES, check, run, to_array, to_tensor, unreached

REDUCTIONS = [0, 1, 2]
FLOAT = [torch.float32, torch.float64, torch.bfloat16]
IGNORED = -100


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def gradient(like: torch.Tensor) -> torch.Tensor:
    return randn(*like.shape, dtype=like.dtype, seed=9)


def check_both(name: str, x: torch.Tensor, target: torch.Tensor, *rest: object) -> None:
    check(name, x, target, *rest)
    out = getattr(torch.ops.aten, name)(x, target, *rest)
    check(f"{name}_backward", gradient(out), x, target, *rest)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOAT)
def test_losses_of_a_difference(reduction: int, dtype: torch.dtype) -> None:
    x, target = randn(4, 5, dtype=dtype) * 2, randn(4, 5, dtype=dtype, seed=1)
    check_both("mse_loss", x, target, reduction)
    check_both("smooth_l1_loss", x, target, reduction, 0.7)
    check_both("huber_loss", x, target, reduction, 1.3)


def test_losses_of_a_difference_at_their_corners() -> None:
    x = torch.tensor([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, float("nan"), float("inf")])
    zero = torch.zeros(9)
    for reduction in REDUCTIONS:
        check_both("smooth_l1_loss", x, zero, reduction, 1.0)
        check_both("huber_loss", x, zero, reduction, 1.0)
        check("mse_loss", torch.empty(0), torch.empty(0), reduction)
    check("smooth_l1_loss_backward", torch.ones(()), x, zero, 2, 0.0)
    check("smooth_l1_loss", x, zero, 0, 0.0)
    check("mse_loss", torch.tensor(2.0), torch.tensor(1.5))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [True, False])
def test_binary_cross_entropy(reduction: int, weighted: bool) -> None:
    x = torch.tensor([[0.0, 1.0, 0.25], [1e-20, 0.999999, 0.5]])
    target = torch.tensor([[1.0, 0.0, 0.25], [0.0, 1.0, 0.5]])
    weight = torch.tensor([[0.5, 2.0, 1.0], [1.0, 3.0, 1.0]]) if weighted else None
    check_both("binary_cross_entropy", x, target, weight, reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_soft_margin(reduction: int) -> None:
    target = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, 1.0]).reshape(2, 3)
    check_both("soft_margin_loss", randn(2, 3) * 3, target, reduction)
    check_both("soft_margin_loss", randn(2, 3).double(), target.double(), reduction)


def check_nll(
    name: str, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int,
    ignored: int = IGNORED,
) -> None:  # fmt: skip
    args = (x, target, weight, reduction, ignored)
    check(f"{name}_forward", *args)
    out, total = getattr(torch.ops.aten, f"{name}_forward")(*args)
    check(f"{name}_backward", gradient(out), *args, total)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dtype", FLOAT)
def test_nll_loss(reduction: int, weighted: bool, dtype: torch.dtype) -> None:
    weight = torch.tensor([0.5, 1.0, 2.0]).to(dtype) if weighted else None
    target = torch.tensor([0, 2, IGNORED, 1])
    check_nll("nll_loss", randn(4, 3, dtype=dtype), target, weight, reduction)
    check_nll("nll_loss", randn(4, 3, dtype=dtype), target.clamp(min=0), weight, reduction, 1)
    image = torch.randint(0, 3, (2, 2, 4), generator=torch.Generator().manual_seed(0))
    image[0, 0, 0] = IGNORED
    check_nll("nll_loss2d", randn(2, 3, 2, 4, dtype=dtype), image, weight, reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss_corners(reduction: int) -> None:
    x, weight = randn(3), torch.tensor([0.5, 1.0, 2.0])
    check_nll("nll_loss", x, torch.tensor(1), weight, reduction)
    # PyTorch itself rejects the backward of a target of shape [1] beside a single sample.
    check("nll_loss_forward", x, torch.tensor([1]), None, reduction, IGNORED)
    check(
        "nll_loss_forward",
        torch.empty(0, 3),
        torch.empty(0, dtype=torch.int64),
        None,
        reduction,
        -1,
    )
    ignored = torch.tensor([IGNORED, IGNORED])
    check("nll_loss_forward", randn(2, 3), ignored, None, reduction, IGNORED)
    infinite = torch.tensor([[-torch.inf, 0.0], [0.0, -torch.inf]])
    check_nll("nll_loss", infinite, torch.tensor([1, IGNORED]), None, reduction)
    check_nll("nll_loss", infinite, torch.tensor([0, 1]), None, reduction)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_nll_loss_target_dtypes(dtype: torch.dtype) -> None:
    check("nll_loss_forward", randn(3, 4), torch.tensor([0, 3, 1]).to(dtype), None, 1, IGNORED)


@pytest.mark.parametrize("bad", [7, -3])
def test_a_target_that_is_no_class_gives_nan(bad: int) -> None:
    """PyTorch raises at once; a compiled program answers NaN, never a plausible loss."""
    x, target = randn(2, 3), torch.tensor([bad, 1])
    spec = (TensorSpec("float32", (2,)), TensorSpec("float32", ()))
    with jax.enable_x64(True):
        arguments = (to_array(x), to_array(target), None, 0, IGNORED)
        loss, _ = RULES["nll_loss_forward"](RuleContext(spec, "float32"), *arguments)
        assert to_tensor(loss)[0].isnan() and to_tensor(loss)[1] == -x[1, 1]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weighted", [True, False])
def test_multi_margin(reduction: int, p: int, weighted: bool) -> None:
    weight = torch.tensor([0.5, 1.0, 2.0, 0.1]) if weighted else None
    x, target = randn(5, 4), torch.tensor([0, 3, 1, 1, 2])
    check_both("multi_margin_loss", x, target, p, 0.8, weight, reduction)
    check_both("multi_margin_loss", x[0], target[0], p, 0.8, weight, reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multilabel_margin(reduction: int) -> None:
    x = randn(3, 4)
    target = torch.tensor([[3, 0, -1, 1], [-1, 2, 2, 2], [0, 1, 2, 3]])
    for rows, labels in ((x, target), (x[0], target[0])):
        check("multilabel_margin_loss_forward", rows, labels, reduction)
        out, member = torch.ops.aten.multilabel_margin_loss_forward(rows, labels, reduction)
        args = (gradient(out), rows, labels, reduction, member)
        check("multilabel_margin_loss_backward", *args)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances(p: float) -> None:
    x, y = randn(2, 4, 3), randn(2, 5, 3, seed=1)
    y[0, 0] = x[0, 0]  # a distance of 0
    x[1, 1, 1] = y[1, 1, 1]
    check("_cdist_forward", x, y, p, None)
    distance = torch.ops.aten._cdist_forward(x, y, p, None)
    check("_cdist_backward", gradient(distance), x, y, p, distance)
    check("_pdist_forward", x[0], p)
    pairs = torch.ops.aten._pdist_forward(x[0], p)
    check("_pdist_backward", gradient(pairs), x[0], p, pairs)


def test_distances_by_matrix_product() -> None:
    x, y = randn(30, 3), randn(2, 3, seed=1)
    for mode in (None, 0, 1, 2):
        check("_cdist_forward", x, y, 2.0, mode)
    check("_cdist_forward", x[:3], y, 2.0, 1)
    check("_euclidean_dist", x, y)


def test_distances_of_nothing() -> None:
    for rows, width in ((0, 3), (4, 0)):
        x, y = torch.empty(1, 4, width), torch.empty(1, rows, width)
        check("_cdist_forward", x, y, 2.0, None)
        distance = torch.ops.aten._cdist_forward(x, y, 2.0, None)
        check("_cdist_backward", torch.ones_like(distance), x, y, 2.0, distance)
    check("_pdist_forward", torch.empty(1, 3), 2.0)


def test_cross_entropy_survives_a_large_batch() -> None:
    """The sum of 10^5 float32 losses keeps six digits."""
    x = randn(100_000, 3).log_softmax(1)
    target = torch.arange(100_000) % 3
    results, _ = run("nll_loss_forward", x, target, None, 1, IGNORED)
    exact = torch.nn.functional.nll_loss(x.double(), target)
    assert abs(results[0].item() / exact.item() - 1) < 1e-6


def test_every_rule_is_reached() -> None:
    assert unreached("loss", "distance") == set()
