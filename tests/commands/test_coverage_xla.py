"""A few operators of every family, modules and optimizers, on XLA as on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.quick import run
from tests.coverage.quick import ENTRIES


@pytest.mark.slow
def test_the_quick_entries_are_as_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("xla", ENTRIES, tmp_path, capsys)
