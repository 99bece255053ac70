"""Waiting for a file lock with a bound.

``flock`` locks are dropped by the kernel when their holder dies, however it dies, and know
no clock: a killed process never leaves one behind, and a clock that jumps changes nothing.
Leases and temporary files are locked by descriptor, once open and checked to be this user's,
which ``filelock`` has no way to do.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuse.cache.errors import TierBypassError
from fuse.cache.permissions import PRIVATE_FILE, check_private

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05
_GROWTH = 1.5


def pauses() -> Iterator[float]:
    """Yield the pauses of a polling wait: short ones first, then 50 ms for ever."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * _GROWTH, _LONGEST_PAUSE)


def open_lock_file(path: Path) -> int:
    """Open, or make with mode 0600, the lock file at ``path``; return its descriptor.

    Raises:
        CacheTrustError: the file is another user's or others may write it.
        OSError: the file cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, PRIVATE_FILE)
    try:
        check_private(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file without waiting; say whether that worked.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Drop the lock of an open file, for every process that inherited the descriptor too."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of the file at ``path``; wait for it at most ``seconds``.

    Raises:
        TierBypassError: reason ``locked``, when somebody else held it all the while.
        CacheTrustError: the file is another user's or others may write it.
        OSError: the file cannot be opened or locked.
    """
    descriptor = open_lock_file(path)
    try:
        deadline = time.monotonic() + seconds
        for pause in pauses():
            if try_lock(descriptor):
                break
            if time.monotonic() >= deadline:
                text = f"{path} has been locked by another process for {seconds} s"
                raise TierBypassError("locked", text, warn=True)
            time.sleep(pause)
        try:
            yield
        finally:
            unlock(descriptor)
    finally:
        os.close(descriptor)
