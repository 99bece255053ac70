"""Linear algebra of float64, which a TPU lacks: refused by name, so that it runs on the host."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fuse.backends.xla.rules.registry import Unsupported
from tests.backends import rule_harness
from tests.backends.rule_harness import on_platform, run
from tests.backends.test_rules_linalg import StridedContext


@pytest.mark.parametrize(
    ("name", "further", "what"),
    [
        ("_linalg_svd", (False, True), "singular values"),
        ("_linalg_svd", (False, False), "singular values"),
        ("linalg_pinv.atol_rtol_tensor", (), "singular values"),
        ("_linalg_eigh", (), "eigenvectors"),
        ("linalg_lu", (), "LU factors"),
        ("linalg_lu_factor_ex", (), "LU factors"),
        ("linalg_inv_ex", (), "LU factors"),
        ("_linalg_solve_ex", (torch.ones(3, 1, dtype=torch.float64),), "LU factors"),
        ("_linalg_det", (), "LU factors"),
        ("_linalg_slogdet", (), "LU factors"),
    ],
)
def test_float64_is_refused_and_float32_is_not(
    name: str, further: tuple[Any, ...], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_platform("tpu", monkeypatch, StridedContext)
    a = torch.eye(3, dtype=torch.float64)
    with pytest.raises(Unsupported, match=f"a TPU has no {what} of float64"):
        run(name, a, *further)
    run(name, a.float(), *(v.float() if isinstance(v, torch.Tensor) else v for v in further))
    monkeypatch.setattr(rule_harness, "RuleContext", StridedContext)
    run(name, a, *further)
