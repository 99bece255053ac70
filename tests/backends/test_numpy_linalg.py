"""NumPy's rules of linear algebra, Fourier transforms and distances: XLA's cases."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from fuse.backends.numpy.rules.registry import REFUSALS
from tests.backends import numpy_harness, test_rules_linalg, test_rules_loss
from tests.backends.numpy_harness import RuleContext, adopt, run, unreached

adopt(test_rules_linalg, globals())
adopt(
    test_rules_loss,
    globals(),
    leave_out=[
        name
        for name in vars(test_rules_loss)
        if name.startswith("test_") and not name.startswith("test_distances")
    ],
)


@pytest.fixture
def contiguous(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Says whether the first operand is row-major."""

    def set_to(value: bool) -> None:
        context = partial(RuleContext, contiguous=(value, True))
        monkeypatch.setattr(numpy_harness, "RuleContext", context)

    return set_to


@pytest.mark.parametrize("scale", (1e-3, 1.0, 30.0, 300.0))
def test_matrix_exp_of_any_size(scale: float) -> None:
    a = torch.stack([test_rules_linalg.r(4, 4), torch.zeros(4, 4)]).double()
    a = scale * (a - a.mT)  # the exponential of a skew matrix is a rotation: it never overflows
    (result,), (want,) = run("linalg_matrix_exp", a)
    torch.testing.assert_close(result, want, rtol=1e-8, atol=1e-10)


def test_lu_without_pivots_is_refused() -> None:
    for name in ("linalg_lu", "linalg_lu_factor_ex"):
        assert "pivots" in str(REFUSALS[name](None, None, pivot=False))


def test_every_rule_is_called() -> None:
    assert unreached("linalg", "linalg_solve", "fft", "distance") == set()
