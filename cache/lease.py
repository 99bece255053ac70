"""Leases: of the processes of one host that want one executable, one makes it.

A lease is the lock of a file named after the key. The kernel drops it when its holder
dies, so the next process in line takes over at once; a holder that hangs costs the bound
of the wait. The holder removes the file before it drops the lock, and a lock that is won
on a removed file is tried again, so no two processes hold one lease.

A holder that ends without a stored result leaves a mark in the file, readable for those
who still have it open: they make their own at once instead of one after the other.
"""

from __future__ import annotations

import os
import threading
import weakref
from enum import Enum
from pathlib import Path
from typing import final

from fuse.cache.locks import open_lock_file, try_lock, unlock
from fuse.cache.permissions import private_folder

LEASES = "leases"
_SUFFIX = ".lease"
_NO_RESULT = b"no result\n"
# A lease whose file is replaced this often while we look is treated as held by another.
_ATTEMPTS = 16


class LeaseState(Enum):
    """What one look at a lease showed."""

    HELD = "held"  # it is ours
    BUSY = "busy"  # another holds it
    NO_RESULT = "no-result"  # another held it and stored nothing


@final
class Lease:
    """One process's wish to make one entry. Look with ``poll``; end with ``close``."""

    def __init__(self, directory: Path, digest: str) -> None:
        """Name the lease of ``digest`` in the cache folder ``directory``; nothing is touched."""
        self._directory = directory
        self._path = directory / LEASES / (digest + _SUFFIX)
        self._descriptor: int | None = None
        self._held = False
        self._closed = False
        self._lock = threading.Lock()
        _open_leases.add(self)

    def poll(self) -> LeaseState:
        """Try to take the lease, without waiting.

        Raises:
            CacheTrustError: the folder or the file is another user's, or others may write it.
            OSError: the file cannot be made, or the file system has no locks.
        """
        with self._lock:
            if self._closed:
                return LeaseState.BUSY
            for _ in range(_ATTEMPTS):
                state = self._look()
                if state is not None:
                    return state
            return LeaseState.BUSY

    def close(self, *, stored: bool) -> None:
        """Give the lease up, held or not. Calling it again does nothing.

        Args:
            stored: whether the result is in the disk tier for those who wait.
        """
        with self._lock:
            self._closed = True
            descriptor = self._descriptor
            if descriptor is None:
                return
            self._descriptor = None
            try:
                if self._held:
                    self._held = False
                    if not stored:
                        os.pwrite(descriptor, _NO_RESULT, 0)
                    self._path.unlink(missing_ok=True)
                    unlock(descriptor)
            finally:
                os.close(descriptor)

    def _look(self) -> LeaseState | None:
        """Look once; None asks to look again, because the file was replaced meanwhile."""
        if self._descriptor is None:
            private_folder(self._directory, create=True)
            private_folder(self._path.parent, create=True)
            self._descriptor = open_lock_file(self._path)
        descriptor = self._descriptor
        if not try_lock(descriptor):
            return LeaseState.BUSY
        if _is_at(descriptor, self._path):
            # A mark in a file that is still in its place is that of a holder killed while
            # it gave up: its successor is us.
            os.ftruncate(descriptor, 0)
            self._held = True
            return LeaseState.HELD
        left = os.pread(descriptor, len(_NO_RESULT), 0)
        self._descriptor = None
        os.close(descriptor)
        return LeaseState.NO_RESULT if left == _NO_RESULT else None

    def forget_in_child(self) -> None:
        """Drop the descriptor that a forked child inherited; the parent's lock stays its own."""
        descriptor, self._descriptor = self._descriptor, None
        self._held = False
        self._closed = True
        self._lock = threading.Lock()
        if descriptor is not None:
            os.close(descriptor)


def sweep(directory: Path) -> int:
    """Remove lease files that dead holders left; return how many."""
    swept = 0
    for path in (directory / LEASES).glob("*" + _SUFFIX):
        descriptor = open_lock_file(path)
        try:
            if try_lock(descriptor):
                path.unlink(missing_ok=True)
                unlock(descriptor)
                swept += 1
        finally:
            os.close(descriptor)
    return swept


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


_open_leases: weakref.WeakSet[Lease] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for lease in list(_open_leases):
        lease.forget_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
