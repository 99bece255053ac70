"""Reading and writing whole files with care: what both kinds of folder share."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fuse.cache.errors import EntryRejectedError

TEMPORARY = ".tmp-"
# A symbolic link (ELOOP), a socket or a device without a driver (ENXIO) under a cache's name.
_FOREIGN_ERRORS = (errno.ELOOP, errno.ENXIO)

Check = Callable[[Path, os.stat_result], None]


def temporary_name() -> str:
    """Return a new name for a file that is still being written."""
    return f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"


def read_regular(
    path: Path,
    count: int,
    max_bytes: int,
    *,
    check: Check | None = None,
    used: Callable[[int], None] | None = None,
) -> bytes | None:
    """Return up to ``count`` leading bytes of the regular file at ``path``, None without a file.

    Never follows a link and never waits on a pipe.

    Args:
        path: the file.
        count: how many bytes.
        max_bytes: the largest size that is accepted.
        check: called with path and status of the open file; raises to refuse it.
        used: called with the descriptor afterwards, to note the use. By descriptor: the name may
            by then be another file, or a link to one. Where it may not be noted, it stays so.

    Raises:
        EntryRejectedError: reason ``foreign`` or ``too-large``, or what ``check`` raises.
        OSError: the file cannot be opened or read.
    """
    opened = _open_regular(path, max_bytes, check)
    if opened is None:
        return None
    descriptor, size = opened
    try:
        blob = read_up_to(descriptor, min(count, size))
        if used is not None:
            with suppress(OSError):
                used(descriptor)
        return blob
    finally:
        os.close(descriptor)


def _open_regular(path: Path, max_bytes: int, check: Check | None) -> tuple[int, int] | None:
    """Open the regular file at ``path``; return (descriptor, size), or None without a file."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _FOREIGN_ERRORS:
            raise EntryRejectedError("foreign", f"{path} is not a regular file") from error
        raise
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise EntryRejectedError("foreign", f"{path} is not a regular file")
        if info.st_size > max_bytes:
            raise EntryRejectedError("too-large", f"{path} holds {info.st_size} bytes")
        if check is not None:
            check(path, info)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, info.st_size


def read_up_to(descriptor: int, count: int) -> bytes:
    """Read from an open file until ``count`` bytes are there or the file ends."""
    parts = []
    while count > 0:
        part = os.read(descriptor, count)
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def write_all(descriptor: int, blob: bytes) -> None:
    """Write every byte of ``blob`` to an open file. Raises OSError, as for a full disk."""
    rest = memoryview(blob)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
