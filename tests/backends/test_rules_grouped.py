"""Rules of products of groups of rows against PyTorch's CPU kernel."""

from __future__ import annotations

import pytest
import torch

from tests.backends.rule_harness import check, unreached
from tests.backends.test_rules_matmul import BF16, FLOAT, HALF, r

ENDS = ((3, 5, 16), (0, 16, 16), (4, 4, 16))
KINDS = {
    "rows": ((16, 8), (3, 8, 24)),
    "columns": ((3, 8, 24), (24, 16)),
    "sums": ((8, 16), (16, 24)),
}


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_grouped_product(kind: str, ends: tuple[int, ...]) -> None:
    x, y = KINDS[kind]
    for dtype in (FLOAT, BF16, HALF):
        offsets = torch.tensor(ends, dtype=torch.int32)
        check("_grouped_mm", r(*x, dtype=dtype), r(*y, dtype=dtype), offsets)


def test_stacks_of_matrices_need_no_offsets() -> None:
    check("_grouped_mm", r(3, 8, 16), r(3, 16, 24))


def test_every_rule_is_reached() -> None:
    assert unreached("grouped") == set()
