"""Fixtures of the tests of families."""

from __future__ import annotations

import pytest

import fuse
from fuse.device import lazy
from fuse.engine import arrays
from fuse.families import family
from tests.device.recompilation.family_helpers import poisoned


@pytest.fixture
def poisoned_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what the host pads be poison, and small programs be families too."""
    monkeypatch.setattr(arrays, "with_room", poisoned)
    monkeypatch.setattr(family, "FROM_OF_FEW", family.FROM)
    lazy.core().forget()
    fuse.reset_stats()
