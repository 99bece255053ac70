"""NumPy's rules of special functions and activations: XLA's cases."""

from __future__ import annotations

from tests.backends import test_rules_special
from tests.backends.numpy_harness import adopt, unreached

adopt(test_rules_special, globals())


def test_every_rule_is_called() -> None:
    assert unreached("special", "polynomials", "activation", "bessel") == set()
