"""Who may have written a folder or a file.

An executable is native code, so whoever can write a cache can run code as its user.
Folders are made 0700 and files 0600; what belongs to another user, or what another user
may write, is refused with a text that says how to mend it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from fuse.cache.errors import CacheTrustError

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_OPEN_TO_OTHERS = 0o077


def check_private(path: Path, info: os.stat_result) -> None:
    """Check that ``path``, whose status is ``info``, is this user's and only theirs to write.

    Raises:
        CacheTrustError: reason ``owner`` or ``writable``.
    """
    user = os.geteuid()
    if info.st_uid != user:
        raise CacheTrustError(
            "owner",
            f"{path} belongs to user {info.st_uid}, not to {user}: the cache will not use it.\n"
            f"  hint: set FUSE_CACHE_DIR to a folder of your own, or run: "
            f"chown -R {user} {path}",
        )
    mode = stat.S_IMODE(info.st_mode)
    if mode & _WRITABLE_BY_OTHERS:
        raise CacheTrustError(
            "writable",
            f"{path} is writable by others (mode {mode:04o}): the cache will not use it.\n"
            f"  hint: run: chmod go-w {path}",
        )


def private_folder(path: Path, *, create: bool) -> bool:
    """Check the folder at ``path``; make it, with mode 0700, when ``create`` is set.

    Parents are made with the process's own mode mask.

    Returns:
        Whether the folder is there.

    Raises:
        CacheTrustError: the folder is another user's or others may write it.
        NotADirectoryError: the path is no folder.
        OSError: the folder cannot be made.
    """
    if create:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        except FileExistsError as error:
            # The same failure as that of a read there, so that it is said once.
            raise _no_folder(error.filename) from error
    try:
        info = path.stat()
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(info.st_mode):
        raise _no_folder(str(path))
    check_private(path, info)
    return True


def _no_folder(path: str) -> NotADirectoryError:
    return NotADirectoryError(errno.ENOTDIR, "is not a folder", path)


def read_secret(path: Path) -> bytes:
    """Return the key of the signatures from a key file, without the white space around it.

    Raises:
        CacheTrustError: the file is another user's, or others may read or write it.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        info = os.fstat(file.fileno())
        check_private(path, info)
        mode = stat.S_IMODE(info.st_mode)
        if mode & _OPEN_TO_OTHERS:
            raise CacheTrustError(
                "readable",
                f"the key file {path} is open to others (mode {mode:04o}): whoever reads it can "
                f"sign cache entries.\n  hint: run: chmod 600 {path}",
            )
        return file.read().strip()
