"""A private folder of blobs on this host, bounded by bytes.

One lock file orders the writers. Under it a writer makes room and reserves its size, by
making its temporary file that large; so the sum over entries and temporary files keeps the
bound at every moment, however many processes write. The bytes are written outside the
lock, and a rename under it shows them to readers whole.

The sum is kept in a file, so that most writes look at no other file. It may be too large (of
what was removed or replaced since), never too small by our own doing, and it is counted
anew when it meets the bound and every so many writes.

A writer holds the lock of its own temporary file. A temporary file that can be locked has
therefore lost its writer, and is swept.

The time of last use is the file's modification time, taken from a clock that never runs
backwards: now, or one nanosecond after the last stamp that any process gave, whichever is
later. A clock that jumps does not change the order of use.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fuse.cache.errors import CacheTrustError, EntryRejectedError, TierBypassError
from fuse.cache.files import TEMPORARY, read_regular, temporary_name, write_all
from fuse.cache.locks import locked, open_lock_file, try_lock
from fuse.cache.permissions import PRIVATE_FILE, check_private, private_folder
from fuse.cache.store import Store, Stored, digest_of, name_of

ENTRIES = "entries"
LOCK = "lock"
TOTAL = "total"
# Writes until the sum is counted anew, for the sake of files that came in by hand.
_TRUSTED_WRITES = 256
# A folder of at least so many files is emptied by a part of its bound more than a write
# needs, so that a full folder is not looked through at every write.
_LARGE_FOLDER = 1024
_SLACK = 32
_TOTAL_BYTES = 64
_NANOSECONDS = 1_000_000_000


@final
@dataclass(frozen=True, slots=True)
class _File:
    name: str
    digest: str | None  # None for a temporary file
    size: int
    stamp: int


def _check_file(path: Path, info: os.stat_result) -> None:
    try:
        check_private(path, info)
    except CacheTrustError as error:
        raise EntryRejectedError(error.reason, str(error)) from error


def _parse_total(text: bytes) -> tuple[int, int]:
    """Return (bytes, writes since they were counted); what is no such text asks to count."""
    try:
        total, writes = (int(word) for word in text.split())
    except ValueError:
        total = writes = -1
    return (total, writes) if total >= 0 and writes >= 0 else (0, _TRUSTED_WRITES)


@final
class PrivateFolder(Store):
    """Blobs in ``directory/entries``. Safe to share by threads and by processes of one user."""

    def __init__(
        self,
        directory: Path,
        *,
        max_bytes: int,
        read_only: bool = False,
        durable: bool = False,
        lock_seconds: float = 5.0,
    ) -> None:
        """Name the folder; nothing is touched before the first use.

        Args:
            directory: the cache's folder; made with mode 0700 at the first write.
            max_bytes: the bound on the sizes of all blobs together.
            read_only: never write, not even the time of last use.
            durable: flush each blob to the device before it is shown.
            lock_seconds: how long a writer waits for the others.
        """
        self._directory = directory
        self._entries = directory / ENTRIES
        self._lock = directory / LOCK
        self._max_bytes = max_bytes
        self._read_only = read_only
        self._durable = durable
        self._lock_seconds = lock_seconds

    def read(self, digest: str) -> bytes | None:
        """Return a blob whole and stamp its use. Raises as ``Store.read``."""
        return self._read(digest, self._max_bytes, None if self._read_only else self._stamp)

    def read_start(self, digest: str, count: int) -> bytes | None:
        """Return up to ``count`` leading bytes; no use is stamped."""
        return self._read(digest, count, None)

    def write(self, digest: str, blob: bytes) -> None:
        """Make room, then store a blob. Raises as ``Store.write``."""
        if self._read_only:
            raise TierBypassError("read-only", f"{self._directory} is read-only", warn=False)
        if len(blob) > self._max_bytes:
            text = f"an entry of {len(blob)} bytes exceeds the bound of {self._max_bytes}"
            raise TierBypassError("too-large", text, warn=True)
        self._open(create=True)
        with locked(self._lock, self._lock_seconds):
            self._claim(len(blob))
            temporary, descriptor = self._reserve(len(blob))
        try:
            write_all(descriptor, blob)
            if self._durable:
                os.fsync(descriptor)
            # Under the lock, because a file renamed during a look through the folder can be
            # missed under both its names, and the sum would be too small.
            with locked(self._lock, self._lock_seconds):
                self._stamp(descriptor)
                os.rename(temporary, self._entries / name_of(digest))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def contents(self) -> list[Stored]:
        """Return what is stored, least recently used first."""
        if not self._open(create=False):
            return []
        return [
            Stored(file.digest, file.size, file.stamp / _NANOSECONDS)
            for file in self._scan()
            if file.digest is not None
        ]

    def foreign(self) -> list[str]:
        """Return names in the folder that are neither blobs nor temporary files."""
        if not self._open(create=False):
            return []
        with os.scandir(self._entries) as listing:
            return sorted(
                item.name
                for item in listing
                if not item.name.startswith(TEMPORARY)
                and (digest_of(item.name) is None or not item.is_file(follow_symlinks=False))
            )

    def remove(self, digest: str) -> None:
        """Remove a blob; nothing happens when there is none, or when this object only reads."""
        if not self._read_only:
            (self._entries / name_of(digest)).unlink(missing_ok=True)

    def prune(self, max_bytes: int) -> int:
        """Remove least recently used blobs, and what dead writers left, down to ``max_bytes``."""
        if self._read_only or not self._open(create=False):
            return 0
        with locked(self._lock, self._lock_seconds):
            before = self.evictions
            self._make_room(max_bytes, slack=False)
            return self.evictions - before

    def _open(self, *, create: bool) -> bool:
        found = private_folder(self._directory, create=create)
        return found and private_folder(self._entries, create=create)

    def _read(self, digest: str, count: int, used: Callable[[int], None] | None) -> bytes | None:
        if not self._open(create=False):
            return None
        path = self._entries / name_of(digest)
        return read_regular(path, count, self._max_bytes, check=_check_file, used=used)

    def _stamp(self, descriptor: int) -> None:
        """Give an open file the next time of use; three system calls, some 5 us."""
        last = self._lock.stat().st_mtime_ns
        stamp = max(time.time_ns(), last + 1)
        os.utime(self._lock, ns=(stamp, stamp))
        os.utime(descriptor, ns=(stamp, stamp))

    def _scan(self) -> list[_File]:
        """Return blobs and temporary files, least recently used first."""
        found = []
        with os.scandir(self._entries) as listing:
            for item in listing:
                digest = digest_of(item.name)
                if digest is None and not item.name.startswith(TEMPORARY):
                    continue
                # A file may go while we look: another process evicts or renames it.
                with suppress(FileNotFoundError):
                    info = item.stat(follow_symlinks=False)
                    if stat.S_ISDIR(info.st_mode):
                        continue
                    found.append(_File(item.name, digest, info.st_size, info.st_mtime_ns))
        return sorted(found, key=lambda file: (file.stamp, file.name))

    def _reserve(self, size: int) -> tuple[Path, int]:
        """Make a locked temporary file of ``size`` bytes; the caller holds the folder's lock."""
        path = self._entries / temporary_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, PRIVATE_FILE)
        try:
            try_lock(descriptor)
            os.ftruncate(descriptor, size)
        except BaseException:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        return path, descriptor

    def _claim(self, size: int) -> None:
        """Add ``size`` to the sum, evicting where needed; the caller holds the folder's lock.

        Raises:
            TierBypassError: other writers have reserved too much to leave ``size``.
        """
        limit = self._max_bytes - size
        descriptor = open_lock_file(self._directory / TOTAL)
        try:
            total, writes = _parse_total(os.pread(descriptor, _TOTAL_BYTES, 0))
            if total > limit or writes >= _TRUSTED_WRITES:
                total, writes = self._make_room(limit, slack=True), 0
            if total > limit:
                raise TierBypassError("no-room", "other writers fill the disk tier", warn=False)
            # Before the file is made: a writer killed in between leaves too large a sum.
            text = b"%d %d\n" % (total + size, writes + 1)
            os.pwrite(descriptor, text.ljust(_TOTAL_BYTES), 0)
        finally:
            os.close(descriptor)

    def _make_room(self, limit: int, *, slack: bool) -> int:
        """Evict until at most ``limit`` bytes stay, and sweep; return the bytes that stay.

        The caller holds the folder's lock. More than ``limit`` stays only when other writers
        have reserved it.
        """
        files = self._scan()
        total = 0
        for file in files:
            if file.digest is None and self._sweep(file):
                continue
            total += file.size
        if slack and total > limit and len(files) >= _LARGE_FOLDER:
            limit -= self._max_bytes // _SLACK
        for file in files:
            if total <= limit:
                break
            if file.digest is not None:
                (self._entries / file.name).unlink(missing_ok=True)
                total -= file.size
                self.evictions += 1
        return total

    def _sweep(self, file: _File) -> bool:
        """Remove a temporary file whose writer is dead; say whether it is gone."""
        path = self._entries / file.name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return True
        try:
            if not try_lock(descriptor):
                return False
            path.unlink(missing_ok=True)
            return True
        finally:
            os.close(descriptor)
