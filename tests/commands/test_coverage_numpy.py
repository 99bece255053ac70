"""Two operators of every family on NumPy as on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.quick import run
from tests.coverage.quick import ENTRIES, NUMPY


def test_the_quick_entries_are_as_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("numpy", NUMPY, tmp_path, capsys)


def test_they_are_part_of_those_on_xla() -> None:
    assert set(NUMPY) < set(ENTRIES)
    assert len(set(ENTRIES)) == len(ENTRIES)
