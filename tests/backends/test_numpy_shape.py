"""NumPy's rules that move, cut, join and pad dimensions: XLA's cases."""

from __future__ import annotations

import torch

from tests.backends import test_rules_shape
from tests.backends.numpy_harness import adopt, check, unreached

adopt(
    test_rules_shape,
    globals(),
    leave_out=(
        "test_emits_what_it_needs_and_no_more",  # which XLA operations
    ),
)


def test_pixels_of_nothing() -> None:
    check("pixel_shuffle", torch.empty(0, 4, 2, 2), 2)
    check("pixel_unshuffle", torch.empty(2, 1, 0, 4), 2)


def test_every_rule_is_called() -> None:
    assert unreached("shape", "slicing", "padding") == set()
