"""Decompositions of matrices much wider than high: nothing of the square of a side is made."""

from __future__ import annotations

import pytest
import torch

from tests.device.helpers import DEVICE

WIDE = 1 << 17
"""Its square in float64 is 128 GiB."""


@pytest.mark.parametrize("tall", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        torch.linalg.svdvals,
        lambda a: torch.linalg.svd(a, full_matrices=False)[1],
        lambda a: torch.linalg.matrix_norm(a, 2),
        torch.linalg.matrix_rank,
        torch.linalg.pinv,
        lambda a: torch.linalg.qr(a)[1].abs().sum(),
    ],
    ids=["svdvals", "svd", "norm", "rank", "pinv", "qr"],
)
def test_a_wide_matrix(function, tall: bool):
    a = torch.rand(2, WIDE, dtype=torch.float64)
    a = a.mT if tall else a
    torch.testing.assert_close(function(a.to(DEVICE)).cpu(), function(a))
