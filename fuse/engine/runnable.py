"""A plan bound to its executables: what a cut on a known stream goes straight to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fuse.backends.base import Chunk
from fuse.cache.key import Key
from fuse.engine.executables import Found
from fuse.families.family import Padding
from fuse.plan.plan import Plan, PlannedChunk
from fuse.plan.speculation import starting_points
from fuse.trace.node import Leaf
from fuse.trace.picker import Picker, picker
from fuse.trace.renumber import renumber

if TYPE_CHECKING:
    from fuse.engine.data_checks import Checked
    from fuse.engine.targeted import Planned


@dataclass(frozen=True, slots=True)
class Bound:
    """An executable, or the one that is ``pending`` and the ``chunk`` that is run meanwhile."""

    found: Found
    chunk: Chunk | None = None
    pending: Future[Found] | None = None


@dataclass(slots=True)
class Stage:
    """One chunk of a plan and what runs it.

    Arrays are kept in slots: the trace's leaves, then the results of each stage as they come.
    ``take`` picks the chunk's inputs from them, and ``drop`` lists the slots that nothing reads
    after it. ``scalars`` are its words among the trace's, ``None`` for all of them. ``read`` are
    the results that the program has read before: see ``host_reads``.
    """

    executable: Any
    take: Picker
    scalars: list[int] | None
    drop: tuple[int, ...]
    found: Found
    chunk: Chunk | None = None
    pending: Future[Found] | None = None
    read: tuple[int, ...] = ()

    def held(self) -> Any:
        """The executable that lives for this stage, also where it has not run it yet, or None."""
        if self.pending is None or not self.pending.done() or self.pending.cancelled():
            return self.executable
        return None if self.pending.exception() else self.pending.result().executable

    def words(self, scalars: bytes) -> bytes:
        """The chunk's part of the trace's packed 64-bit words."""
        if self.scalars is None:
            return scalars
        return np.frombuffer(scalars, np.uint64)[self.scalars].tobytes() if self.scalars else b""


@dataclass(frozen=True, slots=True)
class Started:
    """The first ``stages`` of a plan have run: ``made`` are the slots after the leaves'."""

    stages: int
    made: list[Any]


@dataclass(slots=True, eq=False, weakref_slot=True)
class Runnable:
    """A plan, its stages, and ``finish``, which picks the live values from the slots.

    ``token`` is the position of the smallest live value, ``nbytes`` the size of all. ``starts``
    are pairs of a number of calls recorded and the number of stages that can run then.
    ``planned`` is what ``Targeted.add`` returned for it, where it was planned for a target.
    ``read`` are leaves that an earlier trace read, ``setting`` is what ``Backend.setting`` was.
    ``padding`` says what is padded where the plan is of a trace at the sizes of buckets. ``small``
    are the positions of live values that ``host_reads`` may ask for, once it has looked. Where
    data is ``checked``, the last live value is the checks' state.
    """

    plan: Plan
    stages: tuple[Stage, ...]
    leaves: tuple[int, ...]
    donated: tuple[int, ...]
    finish: Picker
    token: int
    nbytes: int
    starts: tuple[tuple[int, int], ...]
    runs: int = 0
    planned: Planned | None = None
    read: tuple[int, ...] = ()
    setting: str = ""
    padding: Padding | None = None
    small: tuple[int, ...] | None = None
    checked: Checked | None = None


def bound(chunk: Chunk, key: Key, found: Found | Future[Found]) -> Bound:
    """What runs ``chunk``, or will once it is there."""
    if isinstance(found, Found):
        return Bound(found)
    return Bound(Found(None, key.digest, key.label, "pending"), chunk, found)


def local_chunks(plan: Plan, read: tuple[int, ...]) -> list[Chunk]:
    """A plan's chunks, each with values numbered within it; ``read`` as in ``Planning.plan``."""
    uses = Counter(leaf.value for planned in plan.chunks for leaf in planned.inputs)
    uses.update(value for planned in plan.chunks for value in planned.outputs)
    uses.update(read)
    return [local_chunk(planned, uses) for planned in plan.chunks]


def local_chunk(planned: PlannedChunk, uses: Mapping[int, int]) -> Chunk:
    """The chunk with values numbered within it, so that equal chunks have equal keys.

    ``uses`` counts the chunks, of this plan and of earlier ones, that read or make each value.
    """
    nodes, numbers = renumber(planned.nodes)
    inputs = tuple(Leaf(numbers[leaf.value], leaf.layout) for leaf in planned.inputs)
    outputs = tuple(numbers[value] for value in planned.outputs)
    apart = tuple(at for at in planned.donated if uses[planned.inputs[at].value] > 1)
    return Chunk(nodes, inputs, outputs, planned.donated, len(planned.scalars), apart)


def bind(plan: Plan, executables: list[Bound], ahead: bool) -> Runnable:
    """The plan with its chunks' executables; ``ahead`` if its first ones may start early."""
    leaves = tuple(leaf.value for leaf in plan.trace.leaves)
    slots = {value: slot for slot, value in enumerate(leaves)}
    final: dict[int, int] = {}
    for index, planned in enumerate(plan.chunks):
        slots |= {value: len(slots) + at for at, value in enumerate(planned.outputs)}
        final |= dict.fromkeys((leaf.value for leaf in planned.inputs), index)
    live, all_words = set(plan.live), list(range(plan.trace.scalars))
    stages = tuple(
        Stage(
            executable=one.found.executable,
            take=picker([slots[leaf.value] for leaf in planned.inputs]),
            scalars=None if list(planned.scalars) == all_words else list(planned.scalars),
            drop=tuple(slots[v] for v, at in final.items() if at == index and v not in live),
            found=one.found,
            chunk=one.chunk,
            pending=one.pending,
        )
        for index, (one, planned) in enumerate(zip(executables, plan.chunks, strict=True))
    )
    layouts = plan.trace.layouts()
    sizes = [layouts[value].nbytes for value in plan.live]
    token = min(range(len(sizes)), key=sizes.__getitem__)
    finish = picker([slots[value] for value in plan.live])
    starts = starting_points(plan) if ahead else ()
    return Runnable(plan, stages, leaves, plan.donated, finish, token, sum(sizes), starts)
