from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fuse.cache import (
    CacheMissError,
    CacheSettings,
    open_cache,
)
from fuse.cache.lease import Lease, LeaseState
from fuse.errors import ConfigError, FuseError
from tests.cache.common import (
    SECRET,
    Maker,
    awake_seconds,
    closed,
    filled,
    key_of,
    open_at,
    payload_of,
    tier,
)

KEY = key_of("one")


# Lookup order and promotion


def test_made_once_then_memory_then_disk(at: Path) -> None:
    maker, cache = Maker(), open_at(at)
    maker(cache, KEY)
    maker(cache, KEY)
    closed(cache)
    assert tier(cache, "memory")["hits"] == 1 and tier(cache, "memory")["bytes"] == 1000
    disk = tier(cache, "disk")
    assert (disk["hits"], disk["misses"], disk["puts"]) == (0, 1, 1)
    assert cache.stats()["events"] == {"lease-held": 1, "makes": 1}
    second = open_at(at)
    maker(second, KEY)
    assert maker.made == ["one"]
    assert tier(second, "disk")["hits"] == 1 and second.stats()["events"] == {}
    maker(second, KEY)
    assert tier(second, "memory")["hits"] == 1


def test_shared_hits_are_promoted_to_disk(at: Path, tmp_path: Path) -> None:
    shared = {"shared": str(tmp_path / "shared"), "key": SECRET, "head_start_seconds": 20.0}
    filled(at, **shared)
    other = open_at(tmp_path / "other", **shared)
    maker = Maker()
    maker(other, KEY)
    closed(other)
    assert maker.made == [] and tier(other, "shared")["hits"] == 1
    assert tier(other, "disk")["puts"] == 1
    third = open_at(tmp_path / "other")
    maker(third, KEY)
    assert maker.made == [] and tier(third, "disk")["hits"] == 1


def test_get_probes_and_put_stores(at: Path) -> None:
    cache = open_at(at)
    assert cache.get(KEY, bytes) is None
    cache.put(KEY, payload_of(KEY), bytes)
    assert cache.get(KEY, bytes) == payload_of(KEY)
    closed(cache)
    assert open_at(at).get(KEY, bytes) == payload_of(KEY)
    assert cache.clear_memory() == 1


def test_no_tier_at_all_keeps_live_objects() -> None:
    maker, cache = Maker(), open_at(None)
    maker(cache, KEY)
    maker(cache, KEY)
    assert maker.made == ["one"]
    assert list(cache.stats()["tiers"]) == ["memory"]


def test_what_cannot_be_stored_is_counted(at: Path) -> None:
    cache = open_at(at)
    value = cache.get_or_make(KEY, load=bytes, make=lambda: b"x", dump=lambda value: None)
    assert value == b"x"
    closed(cache)
    assert cache.stats()["events"]["not-serialisable"] == 1
    assert open_at(at).get(KEY, bytes) is None


def test_what_making_raises_is_raised_and_frees_the_lease(at: Path) -> None:
    cache = open_at(at)

    def make() -> bytes:
        raise ZeroDivisionError("in the compiler")

    with pytest.raises(ZeroDivisionError, match="in the compiler"):
        cache.get_or_make(KEY, load=bytes, make=make, dump=bytes)
    started = awake_seconds()
    Maker()(open_at(at), KEY)
    assert awake_seconds() - started < 5


def test_the_write_never_delays_the_caller(at: Path) -> None:
    cache, release = open_at(at), threading.Event()

    def dump(value: bytes) -> bytes:
        release.wait(20)
        return value

    started = awake_seconds()
    cache.get_or_make(KEY, load=bytes, make=lambda: payload_of(KEY), dump=dump)
    assert awake_seconds() - started < 5 and cache.stats()["unwritten"] == 1
    assert not cache.flush(0.05)
    release.set()
    closed(cache)
    assert cache.stats()["unwritten"] == 0


def test_a_full_queue_drops_the_write_and_frees_the_lease(at: Path) -> None:
    cache, release = open_at(at, queue_jobs=1), threading.Event()

    def dump(value: bytes) -> bytes:
        release.wait(20)
        return value

    cache.put(KEY, payload_of(KEY), dump)
    other = key_of("two")
    Maker()(cache, other)
    assert cache.stats()["events"]["disk-queue-full"] == 1
    lease = Lease(at, other.digest)
    assert lease.poll() is LeaseState.HELD
    lease.close(stored=False)
    release.set()
    closed(cache)


# Modes


def test_mode_off_uses_memory_only(at: Path, tmp_path: Path) -> None:
    filled(at)
    maker, cache = Maker(), open_at(at, mode="off", shared=str(tmp_path / "shared"))
    maker(cache, KEY)
    maker(cache, KEY)
    assert maker.made == ["one"] and list(cache.stats()["tiers"]) == ["memory"]
    assert not (tmp_path / "shared").exists()


def test_mode_read_only_reads_and_writes_nothing(at: Path, tmp_path: Path) -> None:
    shared = {"shared": str(tmp_path / "shared"), "key": SECRET, "head_start_seconds": 20.0}
    filled(at, **shared)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    maker, cache = Maker(), open_at(at, mode="read-only", **shared)
    maker(cache, KEY)
    maker(cache, key_of("two"))
    closed(cache)
    assert maker.made == ["two"]
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    nowhere = open_at(tmp_path / "nowhere", mode="read-only")
    maker(nowhere, KEY)
    closed(nowhere)
    assert not (tmp_path / "nowhere").exists()


def test_mode_only_raises_the_explanation(at: Path) -> None:
    filled(at)
    cache = open_at(at, mode="only")
    maker = Maker()
    maker(cache, KEY)
    with pytest.raises(CacheMissError) as caught:
        maker(cache, key_of("one", backend="numpy"))
    assert isinstance(caught.value, FuseError)
    assert "backend: wanted 'numpy', stored 'xla'" in str(caught.value)
    assert "fuse cache import" in str(caught.value)
    assert caught.value.explanation.nearest == KEY
    assert cache.get(key_of("three"), bytes) is None
    assert maker.made == []


def test_mode_only_explains_from_the_shared_tier(at: Path, tmp_path: Path) -> None:
    shared = {"shared": str(tmp_path / "shared"), "key": SECRET, "head_start_seconds": 20.0}
    filled(tmp_path / "elsewhere", **shared)
    cache = open_at(at, mode="only", **shared)
    with pytest.raises(CacheMissError, match="backend: wanted 'numpy'"):
        Maker()(cache, key_of("one", backend="numpy"))
    Maker()(cache, KEY)
    closed(cache)
    assert tier(cache, "disk")["puts"] == 1


def test_settings_are_checked_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'maybe' does not exist; choose of \['on', 'off'"):
        CacheSettings(mode="maybe")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="disk_bytes is 0; it must be at least 1"):
        CacheSettings(disk_bytes=0)
    for name in ("disk_bytes", "memory_entries", "memory_bytes", "queue_jobs"):
        assert getattr(CacheSettings(**{name: 1}), name) == 1
    for name in ("lease_seconds", "disk_seconds", "shared_seconds", "retry_seconds"):
        assert getattr(CacheSettings(**{name: 0.0}), name) == 0
        with pytest.raises(ConfigError, match=f"{name} is -1; it must be at least 0"):
            CacheSettings(**{name: -1})
    with pytest.raises(ConfigError, match="lease_seconds is nan"):
        CacheSettings(lease_seconds=float("nan"))
    with pytest.raises(ConfigError, match="needs a key"):
        CacheSettings(shared=str(tmp_path))
    with pytest.raises(ConfigError, match="5 bytes and needs at least 16"):
        CacheSettings(key=b"short")
    assert "0123456789abcdef" not in repr(CacheSettings(key=b"0123456789abcdef"))
    with pytest.raises(ConfigError, match=r"no tier 'shared'; it has \['disk'\]"):
        open_at(tmp_path).tier("shared")


def test_a_url_without_fsspec_is_a_setting_that_cannot_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install fsspec"):
        open_cache(CacheSettings(shared="memory://x", key=SECRET))
