"""NumPy's rules of pooling, resampling and grid sampling: XLA's cases."""

from __future__ import annotations

import pytest
import torch

from fuse.backends.numpy.rules.registry import Unsupported
from tests.backends import test_rules_pooling, test_rules_upsample
from tests.backends.numpy_harness import adopt, check, unreached

adopt(test_rules_pooling, globals())
adopt(test_rules_upsample, globals(), leave_out=("test_every_rule_exists_in_pytorch",))


def test_smooth_resampling_of_integers_is_refused() -> None:
    x = test_rules_upsample.r(1, 1, 4, 4, dtype=torch.uint8)
    with pytest.raises(Unsupported, match="integers"):
        check("upsample_bilinear2d", x, [8, 8], False)


def test_an_average_of_integers_truncates() -> None:
    x = test_rules_pooling.r(1, 2, 6, 6, dtype=torch.int64)
    for divisor in (None, 3, -2):
        check("avg_pool2d", x, [2, 3], [1, 2], [0, 1], False, True, divisor)


def test_nothing_to_sample() -> None:
    x, grid = torch.empty(0, 2, 3, 3), torch.empty(0, 4, 5, 2)
    check("grid_sampler_2d", x, grid, 0, 0, False)
    check("upsample_bilinear2d", x, [5, 5], False)


def test_every_rule_is_called() -> None:
    assert unreached("pooling", "adaptive_pooling", "upsample", "grid_sample") == set()
