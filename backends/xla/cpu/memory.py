"""Keeps memory that XLA's CPU client frees in the process, for the next step to use.

glibc hands back to the system what a chunk's results and intermediates took, and gets it anew for
the next chunk, page by page: each page is cleared and mapped again. Where a chunk needs more than
32 MB that costs a quarter of a training step, and some percent elsewhere.
"""

from __future__ import annotations

import ctypes
import os
import platform

KEPT = 1 << 30
"""Bytes: larger blocks still come from the system, and what is free beyond that goes back to it."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of <malloc.h>
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


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
