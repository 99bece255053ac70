"""NumPy's rules of arithmetic, comparison, elementary functions and factories: XLA's cases."""

from __future__ import annotations

import torch

from fuse.backends.numpy.rules.registry import REFUSALS, RuleContext
from tests.backends import test_rules_factories, test_rules_pointwise
from tests.backends.numpy_harness import adopt, check, unreached

adopt(
    test_rules_pointwise,
    globals(),
    leave_out=(
        "test_scalars_may_be_arrays",  # a Scalar is always a number here
        "test_integer_to_negative_power_is_refused",  # PyTorch refuses it at the call
    ),
)
adopt(test_rules_factories, globals())


def test_complex_logaddexp() -> None:
    x = torch.tensor([1 + 2j, -0.5 + 0.25j, 3 - 1.5j, -2 - 0.125j])
    check("logaddexp", x[:, None], x)


def test_bits_of_floats_are_refused() -> None:
    """So that the call raises PyTorch's error, and not the chunk NumPy's."""
    for name in ("bitwise_and.Tensor", "bitwise_not", "__lshift__.Scalar"):
        assert REFUSALS[name](RuleContext((), "float32")) == "the bits of float32 numbers"
        for whole in ("bool", "uint8", "int64"):
            assert REFUSALS[name](RuleContext((), whole)) is None


def test_every_rule_is_called() -> None:
    assert unreached("pointwise", "arithmetic", "comparison", "factories") == set()
