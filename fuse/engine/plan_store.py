"""The plan store: plans kept from process to process, so that a trace finds its executables.

A plan is stored as indices into its trace, with the digest of each chunk's executable. A start
that finds both neither plans, nor writes out its chunks to find their executables' keys.
Losing a plan costs making it again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import fuse.plan
from fuse.backends.base import Backend, Target
from fuse.cache.key import Key
from fuse.cache.tiered import TieredCache
from fuse.engine.executables import Names, first_line, surroundings
from fuse.plan.plan import Plan
from fuse.plan.stored import decode, encode
from fuse.trace.borders import Borders
from fuse.trace.node import Trace
from fuse.trace.signature import program_text

SHORTEST = 16
"""Operations from which on a plan is stored: reading one takes as long as planning these."""


@dataclass(frozen=True, slots=True)
class Named:
    """A plan, and digest and label of each chunk's executable."""

    plan: Plan
    names: Names

    def held_bytes(self) -> int:
        """What it takes in the memory tier: much more than its stored form."""
        return self.plan.held_bytes()


class PlanStore:
    """Stored plans. Safe to share by threads.

    Attributes:
        whole: operations up to which a trace is one chunk; ``None``: as the device says.
    """

    def __init__(self, cache: TieredCache) -> None:
        self._cache = cache
        self.whole: int | None = None

    def borders(self, backend: Backend | Target) -> Borders:
        """What traces are cut by that run on ``backend``; ``whole`` counts in operations alone."""
        wanted = backend.borders()
        return wanted if self.whole is None else Borders(self.whole, wanted.worth)

    def key(
        self,
        backend: Backend | Target,
        trace: Trace,
        live: tuple[int, ...],
        donatable: tuple[int, ...],
        read: tuple[int, ...],
    ) -> Key | None:
        """The key of a plan: whatever it depends on; ``None`` for a trace too short for one."""
        if len(trace.nodes) < SHORTEST:
            return None
        text = program_text(trace.nodes)
        fields = {
            "kind": "plan",
            # Its digest: an explanation compares executables, and the text may be a megabyte.
            "program digest": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
            "live": repr(live),
            "donatable": repr(donatable),
            "read": repr(read),
            "planner": f"{planner_digest()} {self.borders(backend)}",
            **surroundings(backend),
        }
        return Key.of(fields, label=f"plan of {len(trace.nodes)} operations{first_line(trace)}")

    def find(
        self,
        key: Key | None,
        backend: Backend | Target,
        trace: Trace,
        live: tuple[int, ...],
        donatable: tuple[int, ...],
    ) -> Named | None:
        """The stored plan, checked against the trace; ``None`` where there is none."""
        if key is None:
            return None
        device = self.borders(backend)
        return self._cache.get(
            key, lambda data: Named(*decode(data, trace, live, donatable, device)), quick=True
        )

    def save(self, key: Key | None, backend: Backend | Target, plan: Plan, names: Names) -> None:
        """Store a plan that was made for ``backend``, in the background."""
        if key is not None:
            device = self.borders(backend)
            self._cache.put(
                key, Named(plan, names), lambda one: encode(one.plan, one.names, device)
            )

    def refuse(self, key: Key | None, text: str) -> None:
        """Forget a plan whose executables turned out to be others': counted and warned of."""
        if key is not None:
            self._cache.refuse(key, text)


@cache
def planner_digest() -> str:
    """A digest of the planner's sources."""
    digest = hashlib.sha256()
    for path in sorted(Path(fuse.plan.__path__[0]).glob("*.py")):
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()[:16]
