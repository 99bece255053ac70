"""NumPy's rules of matrix products, also of groups, and convolutions: XLA's cases."""

from __future__ import annotations

import pytest
import torch

from fuse.backends.numpy.rules.registry import REFUSALS
from tests.backends import test_rules_convolution, test_rules_grouped, test_rules_matmul
from tests.backends.numpy_harness import (
    RULES,
    RuleContext,
    adopt,
    specs_of,
    to_array,
    to_tensor,
    unreached,
)
from tests.backends.test_rules_matmul import r

adopt(
    test_rules_matmul,
    globals(),
    leave_out=("test_every_rule_is_registered", "test_scales_of_blocks_are_refused"),
)
adopt(test_rules_convolution, globals())
adopt(test_rules_grouped, globals())


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
def test_half_precision_operands_with_a_float32_result(dtype: torch.dtype) -> None:
    """PyTorch has these on CUDA alone: compare with the product of widened operands."""
    x, y, base = r(3, 4, 5, dtype=dtype), r(3, 5, 2, dtype=dtype), r(3, 4, 2)
    for name, expected, operands in (
        ("mm.dtype", x[0].float() @ y[0].float(), (x[0], y[0])),
        ("bmm.dtype", x.float() @ y.float(), (x, y)),
        ("addmm.dtype", base[0] + x[0].float() @ y[0].float(), (base[0], x[0], y[0])),
        ("baddbmm.dtype", base + x.float() @ y.float(), (base, x, y)),
    ):
        context = RuleContext(out=specs_of([expected]), result_type="float32")
        result = RULES[name](context, *map(to_array, operands), "float32")
        assert result.dtype == "float32"
        torch.testing.assert_close(to_tensor(result), expected)


def test_scales_of_blocks_have_no_definition() -> None:
    refuse = REFUSALS["_scaled_mm_v2"]
    assert refuse(None, None, None, [], (0,), (0,), [], (2,)) == "scales of blocks of a matrix"
    assert refuse(None, None, None, [], (0,), (0,), [], (1,)) is None


def test_every_rule_is_called() -> None:
    assert unreached("matmul", "grouped", "convolution") == set()
