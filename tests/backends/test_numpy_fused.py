"""NumPy's rules of fused optimizer steps and of the CTC loss: XLA's cases."""

from __future__ import annotations

from tests.backends import test_rules_fused
from tests.backends.numpy_harness import adopt, unreached

adopt(test_rules_fused, globals())


def test_every_rule_is_called() -> None:
    assert unreached("fused_optimizers", "ctc") == set()
