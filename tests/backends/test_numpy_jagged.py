"""NumPy's rules of sequences that lie behind one another: XLA's cases."""

from __future__ import annotations

from tests.backends import test_rules_jagged
from tests.backends.numpy_harness import adopt, unreached

adopt(test_rules_jagged, globals())


def test_every_rule_is_called() -> None:
    assert unreached("jagged") == set()
