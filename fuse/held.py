"""How many executables live for the plans of known streams.

An executable of XLA's CPU compiler takes 8 to some 30 memory maps. Linux gives a process 65,530
of them (``vm.max_map_count``), and where there are no more, LLVM ends it. The memory tier bounds
what it holds itself; this is the bound of what is held beside it.
"""

from __future__ import annotations

import weakref
from typing import final

from fuse.runnable import Runnable


@final
class HeldPlans:
    """The plans that the native core holds. Used under the recorder's mutex."""

    def __init__(self, most: int) -> None:
        """``most`` is the number of executables from which on streams are to be forgotten."""
        self._most = most
        self._plans: weakref.WeakSet[Runnable] = weakref.WeakSet()

    def add(self, plan: Runnable) -> Runnable:
        """Note a plan for as long as it lives, and return it."""
        self._plans.add(plan)
        return plan

    def executables(self) -> int:
        """How many executables live for them: 0.2 us a plan."""
        return len({stage.found.digest for plan in self._plans for stage in plan.stages})

    def are_too_many(self) -> bool:
        """Whether more executables live for them than may."""
        return self.executables() > self._most
