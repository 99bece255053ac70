"""Which of a test's cases everybody runs; ``make test-slow`` runs the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(quick: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases for ``pytest.mark.parametrize``, all marked slow that are not among ``quick``."""
    kept = list(quick)
    return [one if one in kept else pytest.param(one, marks=pytest.mark.slow) for one in cases]
