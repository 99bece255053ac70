"""Runs the fixed quick part of ``fuse coverage`` on one backend, as a user would."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coverage import command
from tests.coverage.record import load


def run(
    backend: str, entries: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every check is as the table of expected failures says, and nearly all run natively."""
    arguments = ["--quick", "--mode", "fused", "--backend", backend, "--jobs", "1"]
    arguments += ["--timeout", "600"]
    code = command.main([*arguments, "--folder", str(folder)])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert printed.endswith("0 checks are not as expected\n")
    records = load(folder / f"quick-{backend}-fused.jsonl")
    assert set(records) == set(entries)
    for key, record in records.items():
        assert record.checks, f"{key}: nothing was checked"
    assert sum(record.native for record in records.values()) >= 0.95 * len(records)
    assert not (folder / f"{backend}-fused.jsonl").exists()
