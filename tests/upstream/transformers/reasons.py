"""Why tests of transformers' that pass on the CPU need not pass on the device."""

from __future__ import annotations

from typing import Final

from tests.upstream.suite import Reasons

OUTSIDE: Final = ("README", "the test", "transformers")
TEXTS: Final[dict[str, tuple[str, ...]]] = {}
TESTS: Final[dict[str, tuple[str, ...]]] = {}

REASONS: Final = Reasons(TEXTS, TESTS, OUTSIDE)
