"""Shared by every test: the seed, and the three modes as a parameter."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import fuse
from tests.cache.s3 import NEEDS, s3_server

_cache = tempfile.TemporaryDirectory(prefix="fuse-tests-")
# What earlier runs compiled is no part of a test; child processes share what this one compiles.
os.environ["FUSE_CACHE_DIR"] = _cache.name
# What is compiled is what most tests are about; others name their tier.
os.environ.setdefault("FUSE_TIER", "compiled")

MODES = ("debug", "strict", "fused")


@pytest.fixture(autouse=True)
def seed() -> None:
    """Every test starts from the same random state, on the host and on the device."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """A test that leaves settings or the dispatcher changed fails, not one of those after it."""
    before = _settings()
    yield
    assert _settings() == before


def _settings() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name.startswith("FUSE_")}
    own["mode"], own["backend"] = fuse.get_mode(), fuse.get_backend()
    # A guard that outlives its call: transforms of torch.func no longer work then.
    own["dispatcher"] = str(torch._C._dispatch_tls_local_exclude_set())
    return own


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, Any]]:
    """Options of s3fs for an S3-compatible server, which runs as long as the tests do."""
    for name in NEEDS:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}: pip install 'moto[server]' s3fs")
    with s3_server() as options:
        yield options


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs once in each eager mode."""
    before = fuse.get_mode()
    fuse.set_mode(request.param)
    yield request.param
    fuse.set_mode(before)
