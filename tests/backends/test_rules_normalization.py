"""Normalisation and softmax: rules against PyTorch's CPU kernels."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import torch

from fuse.backends.xla.rules.registry import RuleContext
from fuse.trace.operators import operator
from fuse.trace.spec import TensorSpec
from tests.backends.rule_harness import RULES, check, find, to_array, to_tensor, unreached

HALF = [torch.bfloat16, torch.float16]
FLOAT = [torch.float32, torch.float64, torch.bfloat16]
ALL3 = [True, True, True]


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", FLOAT)
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(dtype: torch.dtype, affine: bool) -> None:
    x = randn(3, 5, 4, 6, dtype=dtype) * 2 + 3
    w, b = (randn(4, 6, dtype=dtype), randn(4, 6, dtype=dtype, seed=1)) if affine else (None, None)
    check("native_layer_norm", x, [4, 6], w, b, 1e-5)
    _, mean, rstd = torch.native_layer_norm(x, [4, 6], w, b, 1e-5)
    grad = randn(3, 5, 4, 6, dtype=dtype, seed=2)
    mask = [True, affine, affine]
    check("native_layer_norm_backward", grad, x, [4, 6], mean, rstd, w, b, mask)


@pytest.mark.parametrize("mask", [[True, False, True], [False, True, False], [False, False, True]])
def test_layer_norm_backward_gives_only_the_masked_gradients(mask: list[bool]) -> None:
    x, w, b = randn(6, 5), randn(5), randn(5)
    _, mean, rstd = torch.native_layer_norm(x, [5], w, b, 1e-5)
    check("native_layer_norm_backward", randn(6, 5, seed=3), x, [5], mean, rstd, w, b, mask)


def test_layer_norm_corners() -> None:
    check("native_layer_norm", randn(7), [7], None, None, 1e-5)
    check("native_layer_norm", torch.empty(0, 4), [4], None, None, 1e-5)
    check("native_layer_norm", torch.full((2, 3), 5.0), [3], None, randn(3), 1e-5)
    check("native_layer_norm", randn(4, 64) + 1e4, [64], None, None, 1e-5)
    check("native_layer_norm", randn(2, 8, dtype=torch.bfloat16), [8], randn(8), randn(8), 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [None, 1e-3])
def test_rms_norm(dtype: torch.dtype, eps: float | None) -> None:
    x, w, grad = (randn(3, 4, 6, dtype=dtype, seed=s) for s in range(3))
    w = w[0, 0]
    check("_fused_rms_norm", x, [6], w, eps)
    check("_fused_rms_norm", x, [4, 6], None, eps)


@pytest.mark.parametrize("affine", [True, False])
def test_rms_norm_backward(affine: bool) -> None:
    """PyTorch has no CPU kernel of this operator: autograd through the composite is the measure."""
    x, grad = randn(3, 4, 6).requires_grad_(), randn(3, 4, 6, seed=1)
    w = randn(6, seed=2).requires_grad_() if affine else None
    inputs = [x] if w is None else [x, w]
    out, rstd = torch.ops.aten._fused_rms_norm(x, [6], w, 1e-3)
    expected = torch.autograd.grad(out, inputs, grad)
    spec = tuple(TensorSpec("float32", tuple(t.shape)) for t in expected)
    arrays = [to_array(grad), to_array(x), (6,), to_array(rstd), None if w is None else to_array(w)]
    results = RULES["_fused_rms_norm_backward"](
        RuleContext(spec, "float32"), *arrays, (True, affine)
    )
    assert (results[1] is None) is not affine
    for result, want in zip(results, expected, strict=False):
        torch.testing.assert_close(to_tensor(result), want)


@pytest.mark.parametrize("dtype", FLOAT)
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(dtype: torch.dtype, affine: bool) -> None:
    x, grad = randn(2, 6, 3, 5, dtype=dtype), randn(2, 6, 3, 5, dtype=dtype, seed=5)
    w, b = (randn(6, dtype=dtype), randn(6, dtype=dtype, seed=1)) if affine else (None, None)
    check("native_group_norm", x, w, b, 2, 6, 15, 3, 1e-5)
    _, mean, rstd = torch.native_group_norm(x, w, b, 2, 6, 15, 3, 1e-5)
    mask = [True, affine, affine]
    check("native_group_norm_backward", grad, x, mean, rstd, w, 2, 6, 15, 3, mask)


def test_group_norm_of_vectors_and_of_no_batch() -> None:
    check("native_group_norm", randn(4, 6), randn(6), None, 4, 6, 1, 2, 1e-5)
    check("native_group_norm", torch.empty(0, 6, 2), randn(6), randn(6), 0, 6, 2, 3, 1e-5)


def batch_norm_results(name: str, *args: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of the rule's and PyTorch's results, new running statistics last."""
    copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    expected = [*find(name)(*copies), copies[3], copies[4]]
    spec = tuple(TensorSpec(str(t.dtype)[6:], tuple(t.shape)) for t in expected[:-2])
    with jax.enable_x64(True):
        arrays = [to_array(a) if isinstance(a, torch.Tensor) else a for a in args]
        results = RULES[name](RuleContext(out=spec, result_type=spec[0].dtype), *arrays)
        assert len(results) == len(expected)
        return [
            (to_tensor(r.astype(str(w.dtype)[6:])), w)
            for r, w in zip(results, expected, strict=True)
            if w is not None
        ]


@pytest.mark.parametrize("name", ["native_batch_norm", "_native_batch_norm_legit"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(4, 3, 2, 5), (6, 3), (2, 3, 4)])
def test_batch_norm_returns_the_new_running_statistics(
    name: str, training: bool, shape: tuple[int, ...]
) -> None:
    running = randn(3), randn(3).abs() + 0.5
    args = (randn(*shape) * 2 + 3, randn(3), randn(3, seed=1), *running, training, 0.3, 1e-5)
    pairs = batch_norm_results(name, *args)
    assert len(pairs) == 5
    for result, want in pairs:
        torch.testing.assert_close(result, want)
    assert torch.equal(pairs[3][0], running[0]) is not training


def test_batch_norm_without_running_statistics_has_none_to_return() -> None:
    pairs = batch_norm_results(
        "native_batch_norm", randn(5, 3), None, None, None, None, True, 0.1, 1e-5
    )
    assert len(pairs) == 3
    for result, want in pairs:
        torch.testing.assert_close(result, want)


def test_batch_norm_is_listed_as_a_hidden_write_of_its_running_statistics() -> None:
    arguments = find("native_batch_norm")._schema.arguments
    written = [arguments[i].name for i in operator("native_batch_norm").writes]
    assert written == ["running_mean", "running_var"]
    assert all(argument.alias_info is None for argument in arguments)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_half_precision_with_float_parameters(
    dtype: torch.dtype, training: bool
) -> None:
    x, running = randn(4, 3, 6, dtype=dtype), (randn(3), randn(3).abs() + 0.5)
    args = (x, randn(3), randn(3, seed=1), *running, training, 0.1, 1e-5)
    for result, want in batch_norm_results("native_batch_norm", *args):
        tolerance = 1.6e-2 if want.dtype == dtype else 1e-3
        torch.testing.assert_close(result, want, rtol=tolerance, atol=tolerance)


def test_functional_batch_norms() -> None:
    x, w, b = randn(4, 3, 5), randn(3), randn(3, seed=1)
    mean, var = randn(3), randn(3).abs() + 0.5
    for training in (True, False):
        name = "_native_batch_norm_legit_functional"
        check(name, x, w, b, mean, var, training, 0.1, 1e-5)
    check("_native_batch_norm_legit.no_stats", x, w, None, True, 0.1, 1e-5)
    check("_native_batch_norm_legit_no_training", x, None, b, mean, var, 0.1, 1e-5)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mask", [ALL3, [True, False, False], [False, True, True]])
def test_batch_norm_backward(train: bool, dtype: torch.dtype, mask: list[bool]) -> None:
    x, grad = randn(4, 3, 5, dtype=dtype), randn(4, 3, 5, dtype=dtype, seed=4)
    w, mean, var = randn(3, dtype=dtype), randn(3, dtype=dtype), randn(3, dtype=dtype).abs() + 0.5
    _, save_mean, save_rstd = torch.native_batch_norm(x, w, None, None, None, True, 0.1, 1e-5)
    saved = (save_mean, save_rstd)
    name = "native_batch_norm_backward"
    check(name, grad, x, w, mean, var, *saved, train, 1e-5, mask)
    if not mask[1]:
        check(name, grad, x, None, mean, var, *saved, train, 1e-5, mask)


@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weight_norm(dim: int, dtype: torch.dtype) -> None:
    v, grad = randn(4, 3, 5, dtype=dtype), randn(4, 3, 5, dtype=dtype, seed=1)
    g = randn(*((4, 1, 1) if dim == 0 else (1, 1, 5)), dtype=dtype)
    check("_weight_norm_interface", v, g, dim)
    _, norms = torch.ops.aten._weight_norm_interface(v, g, dim)
    check("_weight_norm_interface_backward", grad, v, g, norms, dim)


@pytest.mark.parametrize("dtype", FLOAT)
@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_softmax(name: str, dtype: torch.dtype) -> None:
    x, grad = randn(3, 4, 5, dtype=dtype) * 4, randn(3, 4, 5, dtype=dtype, seed=1)
    for dim in (-1, 0, 1):
        check(name, x, dim, False)
        out = find(name)(x, dim, False)
        check(f"{name}_backward_data", grad, out, dim, dtype)


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_softmax_corners(name: str) -> None:
    inf = float("inf")
    check(name, torch.tensor(3.0), 0, False)
    check(name, torch.tensor(3.0), -1, False)
    check(name, torch.empty(2, 0), 1, False)
    check(name, torch.empty(0, 2), 1, False)
    rows = torch.tensor([[-inf, -inf], [inf, 1.0], [float("nan"), 0.0], [1e30, -1e30], [-inf, 1]])
    check(name, rows, 1, False)
    check(f"{name}_backward_data", torch.tensor(2.0), torch.tensor(1.0), 0, torch.float32)


def test_safe_softmax_gives_zero_for_a_masked_row() -> None:
    x = torch.tensor([[-torch.inf, -torch.inf], [0.0, -torch.inf], [1.0, 2.0]])
    check("_safe_softmax", x, 1)
    check("_safe_softmax", x, 0, torch.float64)
    check("_safe_softmax", x.bfloat16(), -1)


def test_batch_norm_that_updates_its_statistics() -> None:
    args = (randn(4, 3, 5), randn(3), randn(3, seed=1), randn(3), randn(3).abs() + 0.5, 0.1, 1e-5)
    check("_batch_norm_with_update_functional", *args)
    pairs = batch_norm_results("_batch_norm_with_update", *args)
    assert len(pairs) == 6
    for result, want in pairs:
        torch.testing.assert_close(result, want)


def test_every_rule_is_reached() -> None:
    assert unreached("normalization", "batch_norm", "softmax") == set()
