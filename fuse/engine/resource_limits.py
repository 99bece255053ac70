"""Resource limits of the plans of known streams, and when some of it is to be let go.

XLA's CPU compiler makes three memory maps for every kernel of a program, a hundred for a training
step. Linux gives a process 65,530 of them (``vm.max_map_count``), and where there are no more, LLVM
ends it. The memory tier bounds the executables that it holds itself, their number and their bytes;
here are those that plans hold, and the maps of all together.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any, Final, final

from fuse.cache.memory import weight
from fuse.engine.runnable import Runnable

BETWEEN: Final = 16
"""Executables between two looks at the maps: reading 30,000 of them takes 20 ms."""


@final
class HeldPlans:
    """The plans that the native core holds. Used under the recorder's mutex."""

    def __init__(self, most: int, most_bytes: int, most_maps: int | None) -> None:
        """Bounds of the plans' executables, of all bytes of both, and of the process's maps."""
        self._most, self._most_bytes, self.most_maps = most, most_bytes, most_maps
        self._plans: weakref.WeakSet[Runnable] = weakref.WeakSet()
        self._unseen = 0

    def add(self, plan: Runnable) -> Runnable:
        """Note a plan for as long as it lives, and return it."""
        self._plans.add(plan)
        self._unseen += len(plan.stages)
        return plan

    def executables(self) -> tuple[int, int]:
        """How many executables live for the plans, and their bytes: 0.5 us a plan."""
        held: dict[str, Any] = {}
        for plan in self._plans:
            for stage in plan.stages:
                digest, executable = stage.found.digest, stage.held()
                if executable is not None or digest not in held:
                    held[digest] = executable
        return len(held), sum(weight(one, 0) for one in held.values())

    def are_too_many(self) -> bool:
        """Whether one of the bounds is passed; of the maps only now and then."""
        number, size = self.executables()
        size += sum(plan.plan.held_bytes() for plan in self._plans)
        if number > self._most or size > self._most_bytes:
            return True
        if self.most_maps is None or self._unseen < BETWEEN:
            return False
        self._unseen = 0
        return memory_maps() > self.most_maps


def memory_maps() -> int:
    """How many memory maps this process has."""
    return Path("/proc/self/maps").read_bytes().count(b"\n")


def half_of_all_maps() -> int | None:
    """Half of what Linux allows; ``None`` on other systems, which have no such bound."""
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text()) // 2
    except (OSError, ValueError):
        return None
