"""NumPy's rules of reductions, scans, sorting, normalisation, softmax and losses: XLA's cases."""

from __future__ import annotations

import pytest
import torch

from fuse.backends.numpy.rules.sorting import stable_order
from tests.backend import (
    test_rules_loss,
    test_rules_normalization,
    test_rules_reduction,
    test_rules_sorting,
)
from tests.backend.numpy_harness import Unsupported, adopt, check, run, unreached

NAN = float("nan")

adopt(
    test_rules_reduction,
    globals(),
    leave_out=(
        "test_scalars_may_be_dynamic",  # a Scalar is always a number here
        "test_unsupported_dtypes",  # complex numbers are defined here
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
adopt(test_rules_normalization, globals())
adopt(test_rules_loss, globals())


def test_complex_log_sums() -> None:
    x = torch.tensor([[1 + 2j, -0.5 + 0.25j, 3 - 1.5j], [-2 - 0.125j, 0.5j, 1 + 0j]])
    check("logsumexp", x, [1])
    check("logcumsumexp", x, 1)


def test_empty_and_scalar_sorts() -> None:
    check("sort", torch.tensor(3.0), 0)
    check("sort", torch.empty(0), 0)
    check("sort", torch.empty(3, 0), 1)
    check("sort", torch.empty(0, 3), 1, True)


@pytest.mark.parametrize(
    ("name", "args", "reason"),
    [
        ("linalg_vector_norm", (torch.ones(3), 1j), "complex order"),
    ],
)
def test_refusals_give_their_reason(name, args, reason):  # type: ignore[no-untyped-def]
    with pytest.raises((Unsupported, RuntimeError), match=reason):
        run(name, *args)


def test_every_rule_is_called() -> None:
    families = ("reduction", "scan", "sorting", "normalization", "softmax", "loss", "distance")
    assert unreached(*families) == set()
