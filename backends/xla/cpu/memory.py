"""The host's memory: what an executable takes, and what XLA's CPU client frees being kept.

Without the latter glibc hands back to the system what a chunk's results and intermediates took, and
gets it anew for the next chunk, page by page: each page is cleared and mapped again. Where a chunk
needs more than 32 MB that costs a quarter of a training step, and some percent elsewhere.
"""

from __future__ import annotations

import ctypes
import os
import platform

EXECUTABLE = 100 << 10
"""Bytes that an executable takes, however small its program is: code, and what XLA knows of it."""
A_STORED_BYTE = 22
"""What each byte of its stored form takes beside that."""
UNKNOWN = 600 << 10
"""What one is counted with that has not been stored: the mean of small programs."""
KEPT = 1 << 30
"""Bytes: larger blocks still come from the system, and what is free beyond that goes back to it."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of <malloc.h>
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


def held_bytes(stored: int | None) -> int:
    """What an executable takes, of ``stored`` bytes where that is known.

    Measured as the growth of resident memory with 25 to 80 executables of a kind: a sum of 5 KB
    stored 0.22 MB, a chain of 20 operations 0.28, a convolution (16 KB) 0.7, a step of AdamW
    (60 KB) 1.2, an encoder layer (105 KB) 2.3; all of it is freed with the executable.
    """
    return UNKNOWN if stored is None else EXECUTABLE + A_STORED_BYTE * stored


def give_back() -> None:
    """Let the system have the pages of freed memory that is kept, where glibc is: 5 to 20 ms.

    Executables leave holes between those that live on, in the arena of every thread that compiles.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory; whether it was told.

    It is not where there is another C library, or where the user has chosen: by one of malloc's
    environment variables or ``GLIBC_TUNABLES``.
    """
    chosen = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if platform.libc_ver()[0] != "glibc" or chosen or any(map(os.environ.get, _SETTINGS)):
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(_MMAP_THRESHOLD, KEPT) and library.mallopt(_TRIM_THRESHOLD, KEPT))
