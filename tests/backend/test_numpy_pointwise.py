"""NumPy's rules of arithmetic, comparison, elementary functions and factories: XLA's cases."""

from __future__ import annotations

import pytest
import torch

from tests.backend import test_rules_factories, test_rules_pointwise
from tests.backend.numpy_harness import adopt, check, unreached

adopt(
    test_rules_pointwise,
    globals(),
    leave_out=(
        "test_every_rule_is_reached",
        "test_scalars_may_be_arrays",  # a Scalar is always a number here
        "test_integer_to_negative_power_is_refused",  # PyTorch refuses it at the call
        "test_complex_logaddexp_is_refused",  # it has a definition here
        "test_agrees_with_cpu",
        "test_zero_keeps_its_sign",
    ),
)


@pytest.mark.parametrize(("name", "args", "kwargs"), test_rules_pointwise.CASES)
def test_pointwise_agrees_with_cpu(name, args, kwargs):  # type: ignore[no-untyped-def]
    check(name, *args, **kwargs)


@pytest.mark.parametrize(("name", "args", "kwargs"), test_rules_factories.CASES)
def test_factories_agree_with_cpu(name, args, kwargs):  # type: ignore[no-untyped-def]
    check(name, *args, **kwargs)


def test_every_rule_is_reached() -> None:
    assert torch
    assert unreached("pointwise", "arithmetic", "comparison", "factories") == set()
