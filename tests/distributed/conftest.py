"""The process group's C++ is built before ranks start, whose time is limited."""

from __future__ import annotations

import pytest

from fuse.distributed.native import LIBRARY


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    LIBRARY.built()
