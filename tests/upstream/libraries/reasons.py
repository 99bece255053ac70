"""Why tests of other libraries that pass on the CPU need not pass on the device."""

from __future__ import annotations

from typing import Final

from tests.upstream.pytorch.reasons import OUTSIDE, TEXTS as OF_PYTORCH
from tests.upstream.suite import Reasons

TESTS: Final[dict[str, tuple[str, ...]]] = {}
"""Tests by name. One that passes in every lane must not be here."""

REASONS: Final = Reasons(OF_PYTORCH, TESTS, OUTSIDE)
