from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import time
from pathlib import Path

import pytest

from fuse.cache import CacheTrustError, EntryRejectedError, TierBypassError, read_secret
from fuse.cache.folder import PrivateFolder
from fuse.cache.store import name_of
from tests.cache.common import awake_seconds, key_of

D = [key_of(str(number)).digest for number in range(6)]


def folder(at: Path, max_bytes: int = 1000, **options: bool) -> PrivateFolder:
    return PrivateFolder(at, max_bytes=max_bytes, lock_seconds=0.2, **options)


def stored(of: PrivateFolder) -> list[str]:
    return [D[D.index(item.digest)] for item in of.contents()]


def test_folders_and_files_are_private(at: Path) -> None:
    old = os.umask(0)
    try:
        folder(at).write(D[0], b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE(at.stat().st_mode) == 0o700
    assert stat.S_IMODE((at / "entries").stat().st_mode) == 0o700
    for path in [at / "lock", at / "total", *(at / "entries").iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("place", ["", "entries", "lock", "total"])
def test_what_others_may_write_is_refused_with_the_mending(at: Path, place: str) -> None:
    folder(at).write(D[0], b"x")
    (at / place).chmod((at / place).stat().st_mode | 0o020)
    with pytest.raises(CacheTrustError, match=f"chmod go-w {at / place}") as caught:
        folder(at).write(D[1], b"y")
    assert caught.value.reason == "writable"
    if place not in ("lock", "total"):
        with pytest.raises(CacheTrustError):
            folder(at).read(D[0])


def test_what_belongs_to_others_is_refused_with_the_mending(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(at).write(D[0], b"x")
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(CacheTrustError, match=rf"chown -R {user + 1} {at}") as caught:
        folder(at).read(D[0])
    assert caught.value.reason == "owner"
    assert "FUSE_CACHE_DIR" in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_others_are_rejected(at: Path) -> None:
    of = folder(at)
    of.write(D[0], b"x")
    path = at / "entries" / name_of(D[0])
    os.chown(path, 12345, 12345)
    with pytest.raises(EntryRejectedError) as caught:
        of.read(D[0])
    assert caught.value.reason == "owner"


def test_a_file_that_others_may_write_is_rejected(at: Path) -> None:
    of = folder(at)
    of.write(D[0], b"x")
    (at / "entries" / name_of(D[0])).chmod(0o602)
    with pytest.raises(EntryRejectedError) as caught:
        of.read(D[0])
    assert caught.value.reason == "writable"


def test_foreign_kinds_of_files_are_rejected_without_waiting(at: Path) -> None:
    of = folder(at)
    of.write(D[0], b"secret")
    entries = at / "entries"
    (entries / name_of(D[1])).symlink_to(entries / name_of(D[0]))
    os.mkfifo(entries / name_of(D[2]), 0o600)
    (entries / name_of(D[3])).mkdir()
    with socket.socket(socket.AF_UNIX) as unix:
        here = os.getcwd()
        os.chdir(entries)  # A socket's path is short.
        try:
            unix.bind(name_of(D[4]))
        finally:
            os.chdir(here)
    (entries / "notes.txt").write_text("mine")
    for digest in D[1:5]:
        with pytest.raises(EntryRejectedError) as caught:
            of.read(digest)
        assert caught.value.reason == "foreign"
    assert {"notes.txt", name_of(D[3])} <= set(of.foreign())
    of.prune(0)
    assert (entries / "notes.txt").exists()


def test_least_recent_use_decides(at: Path) -> None:
    of = folder(at, 300)
    for digest in D[:3]:
        of.write(digest, bytes(100))
    of.read(D[0])
    of.write(D[3], bytes(100))
    assert stored(of) == [D[2], D[0], D[3]]
    assert of.evictions == 1
    of.write(D[4], bytes(200))
    assert stored(of) == [D[3], D[4]]


def test_starts_of_files_are_no_use(at: Path) -> None:
    of = folder(at, 200)
    of.write(D[0], b"abc" + bytes(97))
    of.write(D[1], bytes(100))
    assert of.read_start(D[0], 3) == b"abc"
    of.write(D[2], bytes(100))
    assert stored(of) == [D[1], D[2]]


def test_a_clock_that_jumps_changes_no_order(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns
    of = folder(at, 300)
    for digest, offset in zip(D[:3], (0, 10**18, -(10**18)), strict=True):
        monkeypatch.setattr(time, "time_ns", lambda offset=offset: real() + offset)
        of.write(digest, bytes(100))
    assert stored(of) == D[:3]
    of.read(D[0])
    monkeypatch.undo()
    of.write(D[3], bytes(100))
    assert stored(of) == [D[2], D[0], D[3]]


def test_an_entry_above_the_bound_evicts_nothing(at: Path) -> None:
    of = folder(at, 300)
    of.write(D[0], bytes(300))
    with pytest.raises(TierBypassError, match="301 bytes exceeds the bound of 300") as caught:
        of.write(D[1], bytes(301))
    assert caught.value.reason == "too-large"
    assert stored(of) == [D[0]]


def test_temporary_files_count_until_their_writer_is_dead(at: Path) -> None:
    of = folder(at, 300)
    of.write(D[0], bytes(100))
    path = at / "entries" / ".tmp-1-abc"
    path.write_bytes(bytes(250))
    (at / "total").unlink()  # Our file came past the sum.
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(TierBypassError, match="other writers fill"):
            of.write(D[1], bytes(100))
        assert path.exists()
        assert stored(of) == []
    of.write(D[1], bytes(100))
    assert not path.exists()
    assert stored(of) == [D[1]]


def test_most_writes_look_at_no_other_file(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[int] = []
    real = PrivateFolder._scan

    def scan(self: PrivateFolder) -> object:
        scans.append(1)
        return real(self)

    monkeypatch.setattr(PrivateFolder, "_scan", scan)
    of = folder(at, 100_000)
    for number in range(300):
        of.write(key_of(f"n{number}").digest, bytes(100))
    assert len(scans) == 2


@pytest.mark.parametrize("text", [b"", b"nonsense", b"-5 -5", b"1", b"\xff" * 200])
def test_a_damaged_sum_is_counted_anew(at: Path, text: bytes) -> None:
    of = folder(at, 300)
    for digest in D[:3]:
        of.write(digest, bytes(100))
    (at / "total").write_bytes(text)
    of.write(D[3], bytes(100))
    of.write(D[4], bytes(100))
    assert sum(item.size for item in of.contents()) <= 300


def test_a_sum_that_is_too_large_evicts_nothing_needlessly(at: Path) -> None:
    of = folder(at, 300)
    for _ in range(10):
        of.write(D[0], bytes(100))
    of.write(D[1], bytes(100))
    of.remove(D[1])
    of.write(D[2], bytes(100))
    of.write(D[3], bytes(100))
    assert stored(of) == [D[0], D[2], D[3]] and of.evictions == 0


def test_a_large_full_folder_is_emptied_by_a_part_more(at: Path) -> None:
    of = folder(at, 110_000)
    for number in range(1200):
        of.write(key_of(f"n{number}").digest, bytes(100))
    size = sum(item.size for item in of.contents())
    assert 105_000 < size <= 110_000
    assert {item.digest for item in of.contents()} >= {
        key_of(f"n{number}").digest for number in range(150, 1200)
    }


def test_a_lock_that_stays_taken_costs_its_bound(at: Path) -> None:
    of = folder(at)
    of.write(D[0], b"x")
    with (at / "lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        started = awake_seconds()
        with pytest.raises(TierBypassError) as caught:
            of.write(D[1], b"y")
        assert caught.value.reason == "locked" and awake_seconds() - started < 2
        assert of.read(D[0]) == b"x"


def test_a_failed_write_leaves_nothing(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = folder(at)
    of.write(D[0], b"old")

    def full(descriptor: int, blob: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        of.write(D[0], b"new")
    monkeypatch.undo()
    assert of.read(D[0]) == b"old"
    assert [path.name for path in (at / "entries").iterdir()] == [name_of(D[0])]


def test_short_writes_are_continued(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, blob: real(descriptor, blob[:7]))
    folder(at, durable=True).write(D[0], bytes(range(100)))
    assert folder(at).read(D[0]) == bytes(range(100))


def test_read_only_changes_nothing(at: Path) -> None:
    reader = folder(at, read_only=True)
    assert reader.read(D[0]) is None and reader.contents() == [] and reader.foreign() == []
    assert not at.exists()
    folder(at).write(D[0], b"x")
    before = (at / "entries" / name_of(D[0])).stat().st_mtime_ns
    assert reader.read(D[0]) == b"x"
    reader.remove(D[0])
    assert reader.prune(0) == 0
    with pytest.raises(TierBypassError, match="read-only"):
        reader.write(D[1], b"y")
    assert (at / "entries" / name_of(D[0])).stat().st_mtime_ns == before


def test_a_file_in_the_place_of_the_folder(at: Path) -> None:
    at.write_text("a file")
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        folder(at).write(D[0], b"x")
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        folder(at).read(D[0])


def test_key_files_must_be_private(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"  0123456789abcdef\n")
    path.chmod(0o600)
    assert read_secret(path) == b"0123456789abcdef"
    path.chmod(0o640)
    with pytest.raises(CacheTrustError, match="chmod 600"):
        read_secret(path)
    path.chmod(0o660)
    with pytest.raises(CacheTrustError, match="chmod go-w"):
        read_secret(path)
