"""The shared tier and the disk's bound as the engine uses them, without a compiler."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuse.backends.base import Chunk
from fuse.cache import CacheWarning
from fuse.engine.executables import Executables, cache_settings, key_of
from tests.engine.fakes import FakeBackend, chunk, node

PROGRAMS = [chunk(node(number=float(number))) for number in range(4)]
# The drivers of S3 warn of their own affairs on import and of open sessions at the end.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(params=["folder", "memory", "local", "s3"])
def shared(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared tier of each kind in the environment."""
    name = uuid.uuid4().hex
    if request.param == "s3":
        options = request.getfixturevalue("s3")
        fsspec = pytest.importorskip("fsspec")
        # As FSSPEC_S3 sets it, which is read when fsspec is imported.
        monkeypatch.setitem(fsspec.config.conf, "s3", options)
        fsspec.filesystem("s3", **options).mkdir(name)
    place = {
        "folder": str(tmp_path / "shared"),
        "memory": f"memory://{name}",
        "local": f"local://{tmp_path}/shared",
        "s3": f"s3://{name}/folder",
    }[request.param]
    for variable in ("FUSE_CACHE", "FUSE_CACHE_RECORD"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("FUSE_SHARED_CACHE", place)
    monkeypatch.setenv("FUSE_CACHE_KEY", "k" * 32)


def host(
    at: Path, monkeypatch: pytest.MonkeyPatch, *programs: Chunk, mode: str = "on", **settings: str
) -> tuple[list[str], dict[str, Any]]:
    """Find ``programs`` as a new process with this disk cache does: origins and counts."""
    for name, value in {"FUSE_CACHE_DIR": str(at), "FUSE_CACHE": mode, **settings}.items():
        monkeypatch.setenv(name, value)
    # Nothing is raced in these tests, so that each shows what the store does.
    unhurried = replace(cache_settings(), head_start_seconds=60.0, shared_seconds=60.0)
    with monkeypatch.context() as patch:
        patch.setattr("fuse.engine.executables.cache_settings", lambda: unhurried)
        backend, executables = FakeBackend(), Executables()
    origins = []
    for one in programs or PROGRAMS:
        found = executables.find(backend, one, key_of(backend, one))
        assert found.executable == {"text": str(one)}
        origins.append(found.origin)
    assert executables.cache.flush(120)
    executables.cache.close()
    return origins, executables.stats()


def test_what_one_host_compiled_another_takes(
    shared: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origins, stats = host(tmp_path / "one", monkeypatch)
    assert origins == ["compiled"] * len(PROGRAMS)
    assert stats["cache"]["shared"]["puts"] == len(PROGRAMS)
    origins, stats = host(tmp_path / "two", monkeypatch, mode="only")
    assert origins == ["shared"] * len(PROGRAMS)
    assert stats["compiles"] == 0 and stats["cache"]["shared"]["hits"] == len(PROGRAMS)
    monkeypatch.delenv("FUSE_SHARED_CACHE")
    assert host(tmp_path / "two", monkeypatch, mode="only")[0] == ["disk"] * len(PROGRAMS)


def test_nothing_signed_by_others_is_taken(
    shared: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(tmp_path / "one", monkeypatch)
    with pytest.warns(CacheWarning, match="signed under another key"):
        origins, stats = host(tmp_path / "two", monkeypatch, FUSE_CACHE_KEY="K" * 32)
    assert origins == ["compiled"] * len(PROGRAMS)
    counts = stats["cache"]["shared"]
    assert counts["hits"] == 0 and counts["rejections"] == {"signature": len(PROGRAMS)}


def test_the_disk_keeps_what_was_used_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSE_SHARED_CACHE", raising=False)
    a, b, c, _ = PROGRAMS
    at = tmp_path / "cache"
    host(at, monkeypatch, a, b)
    sizes = [path.stat().st_size for path in (at / "entries").iterdir()]
    most = sum(sizes) + min(sizes) // 2
    bound = {"FUSE_CACHE_DISK_BYTES": str(most)}
    assert host(at, monkeypatch, a, **bound)[0] == ["disk"]
    assert host(at, monkeypatch, c, **bound)[1]["cache"]["disk"]["evictions"] == 1
    assert sum(path.stat().st_size for path in (at / "entries").iterdir()) <= most
    assert host(at, monkeypatch, a, c, mode="read-only", **bound)[0] == ["disk"] * 2
    assert host(at, monkeypatch, b, mode="read-only", **bound)[0] == ["compiled"]
