"""How long a process is waited for: by what it uses of processors, not by the clock.

A compiler shares its cores with the program that it compiles for, and with others'. By the clock
one that gets a fifth of a core would be taken for one that hangs.
"""

from __future__ import annotations

import os
from typing import Final

WORK: Final = 0.5
"""Seconds of processor time by which a process has not stood still."""
LONGEST: Final = 12
"""Times ``seconds`` by the clock, after which one that works on is waited for no longer either."""


class Patience:
    """For one answer: ``seconds`` of processor time, no longer than that without any, and never
    longer than ``LONGEST`` times that.
    """

    def __init__(self, seconds: float, used: float, now: float) -> None:
        """``used`` is what the process has used so far, ``now`` the clock; all in seconds."""
        self._seconds = seconds
        self._start = self._seen = used
        self._begun = self._moved = now

    def spent(self, used: float, now: float) -> str:
        """Why it is waited for no longer; empty where it is."""
        if used - self._start >= self._seconds:
            return f"no answer within {self._seconds:.0f} s of processor time"
        if used - self._seen >= WORK:
            self._seen, self._moved = used, now
        if now - self._moved >= self._seconds:
            return f"no answer, and no work, for {self._seconds:.0f} s"
        if now - self._begun >= LONGEST * self._seconds:
            return f"no answer within {LONGEST * self._seconds:.0f} s"
        return ""


def processor_seconds(process: int) -> float:
    """What all threads of a process have used; it runs, or nobody has waited for its end."""
    with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()  # its name, before, may hold spaces
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
