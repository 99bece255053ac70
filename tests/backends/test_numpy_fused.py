"""NumPy's rules of fused optimizer steps, scaled gradients and the CTC loss: XLA's cases."""

from __future__ import annotations

from tests.backends import test_rules_fused
from tests.backends.numpy_harness import adopt, unreached

adopt(test_rules_fused, globals())


def test_every_rule_is_called() -> None:
    assert unreached("amp", "fused_optimizers", "ctc") == set()
