"""NumPy's rules of attention and of recurrent cells: XLA's cases."""

from __future__ import annotations

import pytest

from fuse.backends.numpy.rules.registry import REFUSALS
from tests.backends import test_rules_attention, test_rules_recurrent
from tests.backends.numpy_harness import adopt, unreached
from tests.backends.rule_harness import find
from tests.backends.test_rules_attention import keep_out  # noqa: F401  (a fixture)
from tests.backends.test_rules_recurrent import seed  # noqa: F401  (a fixture)

adopt(test_rules_attention, globals(), leave_out=("test_dropout_is_refused",))
adopt(test_rules_recurrent, globals())


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("_scaled_dot_product_flash_attention_for_cpu", 3),
        ("_scaled_dot_product_flash_attention_for_cpu_backward", 6),
        ("_scaled_dot_product_fused_attention_overrideable", 4),
        ("_scaled_dot_product_fused_attention_overrideable_backward", 12),
    ],
)
def test_dropout_is_refused(name: str, position: int) -> None:
    assert find(name)._schema.arguments[position].name == "dropout_p"
    given = [None] * position
    assert REFUSALS[name](None, *given, 0.5, False) == "attention with dropout"
    assert REFUSALS[name](None, *given, 0.0, False) is None


def test_every_rule_is_called() -> None:
    assert unreached("attention", "recurrent") == set()
