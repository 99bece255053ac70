"""Why tests of other libraries that pass on the CPU need not pass on the device."""

from __future__ import annotations

from typing import Final

from tests.upstream.pytorch.reasons import CPU_BY_NAME, OUTSIDE, TEXTS as OF_PYTORCH
from tests.upstream.suite import Reasons

BY_NAME: Final = "the test is of a library that knows the CPU and CUDA by name"
FORKS: Final = "the test pins or loads tensors of the default device in processes that are forked"
TEXTS: Final = {
    **OF_PYTORCH,
    CPU_BY_NAME: (
        *OF_PYTORCH[CPU_BY_NAME],
        r"item1 = device\(type='tpu', index=0\), item2 = device\(type='cpu'\)",
    ),
    BY_NAME: (r"ValueError: Unknown device tpu",),
    FORKS: (r"only dense CPU tensors can be pinned", r"was started before this process was forked"),
}
"""Expressions that a failed test's traceback holds."""
TESTS: Final[dict[str, tuple[str, ...]]] = {}
"""Tests by name. One that passes in every lane must not be here."""

REASONS: Final = Reasons(TEXTS, TESTS, OUTSIDE)
