"""NumPy's rules of reductions, scans, sorting, normalisation, softmax and losses: XLA's cases."""

from __future__ import annotations

import numpy as np
import torch

from fuse.backends.numpy.rules.registry import REFUSALS, RuleContext
from fuse.backends.numpy.rules.sorting import stable_order
from tests.backends import (
    test_rules_loss,
    test_rules_normalization,
    test_rules_reduction,
    test_rules_sorting,
)
from tests.backends.numpy_harness import (
    RULES,
    adopt,
    check,
    run,
    specs_of,
    to_array,
    to_tensor,
    unreached,
)

NAN, INF = float("nan"), float("inf")

adopt(
    test_rules_reduction,
    globals(),
    leave_out=(
        "test_scalars_may_be_dynamic",  # a Scalar is always a number here
    ),
)
adopt(
    test_rules_sorting,
    globals(),
    leave_out=(
        "test_accelerators_sort_by_the_same_order",
        "test_sort_corners",
    ),
    stable_order=stable_order,
)
adopt(test_rules_normalization, globals(), leave_out=("test_layer_norm_corners",))
adopt(test_rules_loss, globals())


def test_empty_and_scalar_sorts() -> None:
    check("sort", torch.tensor(3.0), 0)
    check("sort", torch.empty(0), 0)
    check("sort", torch.empty(3, 0), 1)
    check("sort", torch.empty(0, 3), 1, True)


def test_layer_norm_of_little_or_far_away() -> None:
    randn = test_rules_normalization.randn
    check("native_layer_norm", randn(7), [7], None, None, 1e-5)
    check("native_layer_norm", torch.empty(0, 4), [4], None, None, 1e-5)
    check("native_layer_norm", torch.full((2, 3), 5.0), [3], None, randn(3), 1e-5)
    check("native_layer_norm", randn(2, 8, dtype=torch.bfloat16), [8], randn(8), randn(8), 1e-5)
    # Far from 0 the mean itself is rounded to a float32: its last digit is 1e-3 there.
    results, wanted = run("native_layer_norm", randn(4, 64) + 1e4, [64], None, None, 1e-5)
    for result, want in zip(results, wanted, strict=True):
        torch.testing.assert_close(result, want, rtol=1e-3, atol=2e-3)


def test_what_has_no_order_is_refused() -> None:
    x = np.ones(3, np.complex64)
    for name in ("sort", "sort.stable", "topk", "kthvalue"):
        assert REFUSALS[name](RuleContext((), "complex64"), x) == "complex numbers have no order"
    empty = np.ones((2, 0), np.float32)
    assert "empty dimension" in str(REFUSALS["median.dim"](RuleContext((), "float32"), empty, 1))
    assert REFUSALS["median.dim"](RuleContext((), "float32"), empty, 0) is None


def test_batch_norm_that_updates() -> None:
    x, w, b = torch.randn(4, 3, 5), torch.rand(3), torch.rand(3)
    running = torch.rand(3), torch.rand(3)
    check("_batch_norm_with_update_functional", x, w, b, *running, 0.1, 1e-5)
    moved = [value.clone() for value in running]
    expected = torch.ops.aten._batch_norm_with_update(x, w, b, *moved, 0.1, 1e-5)
    arrays = [to_array(t) for t in (x, w, b, *running)]
    context = RuleContext(specs_of(list(expected)), "float32")
    found = RULES["_batch_norm_with_update"](context, *arrays, 0.1, 1e-5)
    for result, want in zip(found, [*expected, *moved], strict=True):
        torch.testing.assert_close(to_tensor(np.asarray(result)), want)


def test_every_rule_is_called() -> None:
    assert (
        unreached("reduction", "scan", "sorting", "normalization", "batch_norm", "softmax", "loss")
        == set()
    )
