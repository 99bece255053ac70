"""Where a device has its traces cut into chunks: what a backend says and the planner follows."""

from __future__ import annotations

from dataclasses import dataclass

WHOLE = 120
"""Operations up to which a trace is one executable, on a CPU."""
WORTH = 1 << 20
"""Bytes made behind a number that are worth a second call, of some 50 us: by them a small network
on 16 rows (0.2 MB, and 1.15 of its time if cut) differs from one on 64 images (4 MB, and 0.7 of
its time). That is on a CPU."""


@dataclass(frozen=True, slots=True)
class Borders:
    """What a device has traces cut by; the defaults are a CPU's.

    Attributes:
        whole: operations up to which a trace is one executable.
        worth: bytes made behind a number that the program reads, from which on making them is
            worth a call of its own.
        dense: operations that a product of a megabyte counts as, for what it takes to compile.
    """

    whole: int = WHOLE
    worth: int = WORTH
    dense: int = 1
