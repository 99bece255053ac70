"""Stores that several hosts reach: a mounted folder, or any fsspec URL.

Neither trusts what it reads: the tier above demands a signature of every entry. Neither
uses locks, which network file systems have in many kinds: a blob is written under a
temporary name and renamed, and the last writer of a key wins with an equal result.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, final

from fuse.cache.errors import EntryRejectedError
from fuse.cache.files import TEMPORARY, read_regular, temporary_name, write_all
from fuse.cache.store import Store, Stored, digest_of, name_of

# No executable we know of comes near; a larger object is somebody's mistake or malice.
MAX_ENTRY_BYTES = 4 << 30
_FILE_MODE = 0o666
# No write takes so long: a circuit breaker gives up each after seconds.
_ABANDONED_SECONDS = 86_400
_TIME_FIELDS = ("mtime", "LastModified", "updated", "last_modified", "created")


def _newest_last(found: list[Stored]) -> list[Stored]:
    return sorted(found, key=lambda stored: (stored.used, stored.digest))


def _remove_oldest(store: Store, max_bytes: int) -> int:
    """Remove blobs, oldest first, until at most ``max_bytes`` stay; return how many."""
    contents = store.contents()
    total = sum(stored.size for stored in contents)
    removed = 0
    for stored in contents:
        if total <= max_bytes:
            break
        store.remove(stored.digest)
        total -= stored.size
        removed += 1
    store.evictions += removed
    return removed


@final
class MountedFolder(Store):
    """Blobs in a folder that several hosts mount; files get the process's own mode mask."""

    def __init__(self, directory: Path, *, max_entry_bytes: int = MAX_ENTRY_BYTES) -> None:
        """Name the folder; its parent must be there, so that a lost mount stays visible."""
        self._directory = directory
        self._max_entry_bytes = max_entry_bytes

    def read(self, digest: str) -> bytes | None:
        """Return a blob whole and set its modification time, where that is allowed.

        Another user's file keeps its time; only the order of pruning is coarser.
        """
        path, bound = self._directory / name_of(digest), self._max_entry_bytes
        return read_regular(path, bound, bound, used=os.utime)

    def read_start(self, digest: str, count: int) -> bytes | None:
        """Return up to ``count`` leading bytes."""
        return read_regular(self._directory / name_of(digest), count, self._max_entry_bytes)

    def write(self, digest: str, blob: bytes) -> None:
        """Write a temporary file and rename it. Raises OSError."""
        with suppress(FileExistsError):
            self._directory.mkdir()
        temporary = self._directory / temporary_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, _FILE_MODE)
        try:
            write_all(descriptor, blob)
            os.rename(temporary, self._directory / name_of(digest))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def contents(self) -> list[Stored]:
        """Return what is stored, least recently used first."""
        found = []
        for item in self._scan():
            digest = digest_of(item.name)
            if digest is None:
                continue
            # Another host may remove a file while we look.
            with suppress(FileNotFoundError):
                info = item.stat(follow_symlinks=False)
                if stat.S_ISREG(info.st_mode):
                    found.append(Stored(digest, info.st_size, info.st_mtime))
        return _newest_last(found)

    def foreign(self) -> list[str]:
        """Return names that are neither blobs nor temporary files."""
        return sorted(
            item.name
            for item in self._scan()
            if digest_of(item.name) is None and not item.name.startswith(TEMPORARY)
        )

    def remove(self, digest: str) -> None:
        """Remove a blob; nothing happens when there is none."""
        (self._directory / name_of(digest)).unlink(missing_ok=True)

    def prune(self, max_bytes: int) -> int:
        """Remove the least recently used blobs until at most ``max_bytes`` stay, and what
        writers killed more than a day ago, or ahead, left half written.
        """
        now = time.time()
        for item in self._scan():
            if item.name.startswith(TEMPORARY):
                # Its writer may end, or another host prune, while we look.
                with suppress(FileNotFoundError):
                    written = item.stat(follow_symlinks=False).st_mtime
                    if abs(now - written) > _ABANDONED_SECONDS:
                        (self._directory / item.name).unlink()
        return _remove_oldest(self, max_bytes)

    def _scan(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._directory) as listing:
                return list(listing)
        except FileNotFoundError:
            return []


@final
class RemoteStore(Store):
    """Blobs under an fsspec URL such as ``s3://bucket/folder``. Stores show no partial object,
    except local ones, for which a temporary name and a rename do the same.
    """

    def __init__(
        self,
        url: str,
        *,
        options: Mapping[str, Any] | None = None,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
    ) -> None:
        """Name the URL and the driver's options; nothing is connected before the first use."""
        self._url = url
        self._options = dict(options or {})
        self._max_entry_bytes = max_entry_bytes
        self._opened: tuple[Any, str, bool] | None = None

    def read(self, digest: str) -> bytes | None:
        """Return a blob whole, or None. Raises ``too-large`` above the bound of an entry."""
        blob = self.read_start(digest, self._max_entry_bytes + 1)
        if blob is not None and len(blob) > self._max_entry_bytes:
            text = f"{self._url}/{name_of(digest)} exceeds {self._max_entry_bytes} bytes"
            raise EntryRejectedError("too-large", text)
        return blob

    def read_start(self, digest: str, count: int) -> bytes | None:
        """Return up to ``count`` leading bytes."""
        files, root, _ = self._open()
        try:
            blob: bytes = files.cat_file(f"{root}/{name_of(digest)}", start=0, end=count)
        except FileNotFoundError:
            return None
        return blob

    def write(self, digest: str, blob: bytes) -> None:
        """Write an object in one piece."""
        files, root, local = self._open()
        path = f"{root}/{name_of(digest)}"
        if not local:
            files.pipe_file(path, blob)
            return
        temporary = f"{root}/{temporary_name()}"
        files.makedirs(root, exist_ok=True)
        try:
            files.pipe_file(temporary, blob)
            files.mv(temporary, path)
        except BaseException:
            with suppress(FileNotFoundError):
                files.rm_file(temporary)
            raise

    def contents(self) -> list[Stored]:
        """Return what is stored, oldest first, by the store's own times."""
        found = []
        for item in self._list():
            digest = digest_of(_last_part(item))
            if digest is not None and item.get("type") == "file":
                found.append(Stored(digest, int(item.get("size") or 0), _time_of(item)))
        return _newest_last(found)

    def foreign(self) -> list[str]:
        """Return names that are neither blobs nor temporary files."""
        names = (_last_part(item) for item in self._list())
        return sorted(
            name for name in names if digest_of(name) is None and not name.startswith(TEMPORARY)
        )

    def remove(self, digest: str) -> None:
        """Remove an object; nothing happens when there is none."""
        files, root, _ = self._open()
        with suppress(FileNotFoundError):
            files.rm_file(f"{root}/{name_of(digest)}")

    def prune(self, max_bytes: int) -> int:
        """Remove the oldest objects until at most ``max_bytes`` stay."""
        return _remove_oldest(self, max_bytes)

    def _list(self) -> list[dict[str, Any]]:
        files, root, _ = self._open()
        files.invalidate_cache()
        try:
            listing: list[dict[str, Any]] = files.ls(root, detail=True)
        except FileNotFoundError:
            return []
        return listing

    def _open(self) -> tuple[Any, str, bool]:
        """Return (file system, root path, whether it is a local one)."""
        if self._opened is None:
            # fsspec is an extra, and its drivers are slow to import: only a process with a
            # remote cache pays for them, and on the helper thread of its first read.
            import fsspec.core  # noqa: PLC0415

            files, root = fsspec.core.url_to_fs(self._url, **self._options)
            protocols = (files.protocol,) if isinstance(files.protocol, str) else files.protocol
            self._opened = files, root.rstrip("/"), "file" in protocols
        return self._opened


def _last_part(item: Mapping[str, Any]) -> str:
    return str(item["name"]).rstrip("/").rpartition("/")[2]


def _time_of(item: Mapping[str, Any]) -> float:
    for name in _TIME_FIELDS:
        value = item.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, (int, float)):
            return float(value)
        if isinstance(value, str):
            with suppress(ValueError):
                return datetime.fromisoformat(value).timestamp()
    return 0.0
