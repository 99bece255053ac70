from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def at(tmp_path: Path) -> Path:
    """Where a test's cache folder will be; nothing is there yet."""
    return tmp_path / "cache"
