"""What goes wrong beside a lookup: damage, failing and hanging tiers, leases, slow remotes."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fuse.cache import (
    CacheWarning,
    TieredCache,
    verify,
)
from fuse.cache.lease import Lease, LeaseState
from fuse.cache.shared import MountedFolder
from fuse.cache.store import name_of
from tests.cache.common import (
    SECRET,
    Maker,
    awake_seconds,
    closed,
    filled,
    key_of,
    open_at,
    payload_of,
    spoil,
    tier,
    until,
)

KEY = key_of("one")


# Failures


def test_damage_costs_a_making_a_count_and_one_warning(at: Path) -> None:
    keys = [key_of(f"k{number}") for number in range(4)]
    filled(at, *keys)
    for key in keys[:3]:
        spoil(at / "entries" / name_of(key.digest))
    maker, cache = Maker(), open_at(at)
    with pytest.warns(CacheWarning, match=r"disk tier: an entry was rejected \(checksum\)") as seen:
        for key in keys:
            maker(cache, key)
        closed(cache)
    assert len(seen) == 1
    assert maker.made == ["k0", "k1", "k2"]
    assert tier(cache, "disk")["rejections"] == {"checksum": 3}
    assert verify(open_at(at).tier("disk")).sound == 4


def test_what_the_backend_refuses_to_load_is_made_again(at: Path) -> None:
    filled(at)
    cache = open_at(at)

    def load(payload: bytes) -> bytes:
        raise RuntimeError("built for another CPU")

    with pytest.warns(CacheWarning, match="RuntimeError: built for another CPU"):
        made = cache.get_or_make(KEY, load=load, make=lambda: b"new", dump=bytes)
    assert made == b"new"
    closed(cache)
    assert tier(cache, "disk")["rejections"] == {"load": 1}
    assert tier(cache, "disk")["hits"] == 0
    assert open_at(at).get(KEY, bytes) == b"new"


def test_a_folder_of_others_is_bypassed_with_one_warning(at: Path) -> None:
    filled(at)
    at.chmod(0o777)
    maker, cache = Maker(), open_at(at)
    with pytest.warns(CacheWarning, match=f"chmod go-w {at}") as seen:
        maker(cache, KEY)
        maker(cache, key_of("two"))
        closed(cache)
    assert len(seen) == 1
    assert maker.made == ["one", "two"]
    assert tier(cache, "disk")["bypasses"]["untrusted-writable"] >= 2


def test_a_full_disk_costs_one_warning(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def full(descriptor: int, blob: Any) -> int:
        if threading.current_thread().name == "fuse-cache-disk":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, blob)

    monkeypatch.setattr(os, "write", full)
    maker, cache = Maker(), open_at(at)
    with pytest.warns(CacheWarning, match="No space left on device") as seen:
        maker(cache, KEY)
        maker(cache, key_of("two"))
        closed(cache)
    assert len(seen) == 1
    assert tier(cache, "disk")["failures"] == {"put-ENOSPC": 2}
    assert list((at / "entries").iterdir()) == []


def test_a_failing_dump_is_told_at_the_next_call(at: Path) -> None:
    cache = open_at(at)

    def dump(value: bytes) -> bytes:
        raise ValueError("no serialisation")

    cache.put(KEY, b"x", dump)
    with pytest.warns(CacheWarning, match="no serialisation"):
        closed(cache)
    assert cache.stats()["events"]["background-ValueError"] == 1


def test_a_vanished_mount_costs_a_making(at: Path, tmp_path: Path) -> None:
    maker = Maker()
    cache = open_at(at, shared=str(tmp_path / "mount" / "cache"), key=SECRET)
    with pytest.warns(CacheWarning, match="shared tier: put failed: FileNotFoundError"):
        maker(cache, KEY)
        closed(cache)
    assert tier(cache, "shared")["failures"] == {"put-ENOENT": 1}
    Maker()(open_at(at), KEY)


def test_a_disk_that_hangs_costs_its_bound_once(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(
        "fuse.cache.folder.PrivateFolder.read", lambda self, digest: release.wait(20) and None
    )
    maker, cache = Maker(), open_at(at, disk_seconds=0.1, retry_seconds=60)
    started = awake_seconds()
    with pytest.warns(CacheWarning, match=r"disk tier: the disk tier did not answer within 0.1 s"):
        for number in range(20):
            maker(cache, key_of(f"k{number}"))
        closed(cache)
    assert awake_seconds() - started < 5
    bypasses = tier(cache, "disk")["bypasses"]
    assert bypasses["timeout"] == 1 and bypasses["paused"] >= 20
    release.set()


# Leases within one process


def test_two_caches_at_once_make_once(at: Path) -> None:
    made: list[int] = []

    def use() -> None:
        def make() -> bytes:
            made.append(1)
            time.sleep(0.2)
            return payload_of(KEY)

        cache = open_at(at)
        assert cache.get_or_make(KEY, load=bytes, make=make, dump=bytes) == payload_of(KEY)
        closed(cache)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert made == [1]


def test_a_holder_that_hangs_costs_the_bound(at: Path) -> None:
    filled(at, key_of("other"))
    lease = Lease(at, KEY.digest)
    assert lease.poll() is LeaseState.HELD
    maker, cache = Maker(), open_at(at, lease_seconds=0.3)
    began, started = time.monotonic(), awake_seconds()
    maker(cache, KEY)
    assert time.monotonic() - began > 0.25
    assert awake_seconds() - started < 5
    closed(cache)
    assert maker.made == ["one"]
    assert cache.stats()["events"] == {"lease-waits": 1, "lease-timeout": 1, "makes": 1}
    lease.close(stored=False)


def test_a_wait_knows_no_wall_clock(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(at, key_of("other"))
    lease = Lease(at, KEY.digest)
    assert lease.poll() is LeaseState.HELD
    jumps = iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: (-1) ** next(jumps) * 1e9)
    monkeypatch.setattr(time, "time_ns", lambda: 10**18 - next(jumps) * 10**12)
    threading.Timer(0.2, lambda: lease.close(stored=True)).start()
    cache = open_at(at, lease_seconds=60)
    started = awake_seconds()
    Maker()(cache, KEY)
    assert awake_seconds() - started < 10
    assert cache.stats()["events"]["lease-held"] == 1
    closed(cache)
    assert open_at(at).get(KEY, bytes) == payload_of(KEY)


def test_a_lease_that_hangs_is_not_kept_when_it_comes_back(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, came_back, real = threading.Event(), threading.Event(), Lease._look

    def slow(self: Lease) -> LeaseState | None:
        release.wait(20)
        found = real(self)
        came_back.set()
        return found

    monkeypatch.setattr(Lease, "_look", slow)
    cache = open_at(at, disk_seconds=0.1, retry_seconds=0.0)
    with pytest.warns(CacheWarning, match="did not answer"):
        Maker()(cache, KEY)
        closed(cache)
    assert cache.stats()["events"]["lease-unavailable"] == 1
    release.set()
    assert came_back.wait(20)
    monkeypatch.undo()
    deadline = time.monotonic() + 10
    lease = Lease(at, KEY.digest)
    while lease.poll() is not LeaseState.HELD:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    lease.close(stored=False)


# The race against a slow shared tier


@pytest.fixture
def slow_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A shared tier that holds KEY and answers when it is told to."""
    settings: dict[str, Any] = {"shared": str(tmp_path / "shared"), "key": SECRET}
    filled(tmp_path / "elsewhere", **settings)
    real = MountedFolder.read
    answers = threading.Event()

    def slow(self: MountedFolder, digest: str) -> bytes | None:
        answers.wait(60)
        return real(self, digest)

    monkeypatch.setattr(MountedFolder, "read", slow)
    yield settings | {"shared_seconds": 60.0, "head_start_seconds": 0.05, "answers": answers}
    answers.set()


def opened(settings: dict[str, Any], at: Path) -> tuple[TieredCache, threading.Event]:
    answers = settings.pop("answers")
    return open_at(at, **settings), answers


def test_a_quick_making_overtakes_a_slow_shared_tier(at: Path, slow_shared: dict[str, Any]) -> None:
    cache, answers = opened(slow_shared, at)
    maker = Maker()
    started = awake_seconds()
    maker(cache, KEY)
    assert awake_seconds() - started < 15
    answers.set()
    closed(cache)
    assert maker.made == ["one"]
    assert cache.stats()["events"]["races"] == 1
    assert tier(cache, "shared")["bypasses"] == {"late": 1}


def test_the_shared_tier_overtakes_a_slow_making(at: Path, slow_shared: dict[str, Any]) -> None:
    cache, answers = opened(slow_shared, at)
    release = threading.Event()

    def make() -> bytes:
        answers.set()
        release.wait(60)
        return b"late"

    started = awake_seconds()
    value = cache.get_or_make(KEY, load=bytes, make=make, dump=bytes)
    assert value == payload_of(KEY) and awake_seconds() - started < 15
    events = cache.stats()["events"]
    assert (events["races"], events["races-won-by-shared"]) == (1, 1) and "makes" not in events
    threading.Timer(0.2, release.set).start()
    closed(cache)
    assert release.is_set()
    assert open_at(at).get(KEY, bytes) == payload_of(KEY)


def test_without_a_race_making_stays_on_the_callers_thread(
    at: Path, slow_shared: dict[str, Any]
) -> None:
    cache, _ = opened(slow_shared, at)
    threads: list[threading.Thread] = []

    def make() -> bytes:
        threads.append(threading.current_thread())
        return payload_of(KEY)

    cache.get_or_make(KEY, load=bytes, make=make, dump=bytes, race=False)
    assert threads == [threading.current_thread()]
    assert tier(cache, "shared")["bypasses"] == {"late": 1}
    closed(cache)


def test_a_making_that_fails_in_the_race_raises(at: Path, slow_shared: dict[str, Any]) -> None:
    cache, _ = opened(slow_shared, at)

    def make() -> bytes:
        raise ZeroDivisionError("in the compiler")

    with pytest.raises(ZeroDivisionError, match="in the compiler"):
        cache.get_or_make(KEY, load=bytes, make=make, dump=bytes)
    closed(cache)


def test_a_shared_tier_that_never_answers_costs_a_making(
    at: Path, slow_shared: dict[str, Any]
) -> None:
    settings = slow_shared | {"shared_seconds": 0.2, "retry_seconds": 600.0}
    cache, _ = opened(settings, at)
    maker = Maker()

    def make() -> bytes:
        until(lambda: "timeout" in tier(cache, "shared")["bypasses"], 20)
        return payload_of(KEY)

    with pytest.warns(CacheWarning, match="shared tier did not answer"):
        assert cache.get_or_make(KEY, load=bytes, make=make, dump=bytes) == payload_of(KEY)
        closed(cache)
    maker(cache, key_of("two"))
    assert tier(cache, "shared")["bypasses"]["paused"] >= 1
    closed(cache)
