"""Programs that run here and are planned and compiled for a target as well.

Every plan made while a target is set is kept with its chunks. From its second run on they go to the
target's compiler, beside the program: what that says, or does, is nothing that the program sees.
What runs once, as an optimizer's first step does, is compiled when it is asked for. Estimates and
executables are kept in the cache, these under the keys of a host of the target.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Final

from fuse.backends.base import Chunk, Target
from fuse.backends.estimates import AS_IT_IS, Estimate, Variant
from fuse.cache.key import Key
from fuse.cache.tiered import TieredCache
from fuse.engine.executables import compile_fields, first_line, key_of, program_fields
from fuse.engine.plan_store import PlanStore
from fuse.engine.pool import Pool
from fuse.plan.plan import Plan
from fuse.trace.node import Leaf, Node
from fuse.trace.renumber import renumber

THREADS: Final = 2
"""Chunks that are compiled at once; each waits for a process of the compiler."""
MOST_RUNS: Final = 1 << 20
"""Runs of plans that are remembered in order."""


@dataclass(slots=True, eq=False)
class Planned:
    """A plan made for the target: its chunks in order, and how often it ran, for which cuts."""

    number: int
    plan: Plan
    chunks: tuple[Chunk, ...]
    donatable: tuple[int, ...]
    read: tuple[int, ...]
    cuts: Counter[str] = field(default_factory=Counter)

    @property
    def runs(self) -> int:
        """How often it ran."""
        return self.cuts.total()


@dataclass(frozen=True, slots=True)
class HostCall:
    """An operation that the target cannot run: it runs on the host, there as here."""

    node: Node
    reason: str


class Targeted:
    """What is known of a program for one target. Filled under the recorder's mutex."""

    def __init__(self, target: Target, cache: TieredCache, plans: PlanStore) -> None:
        """Nothing is compiled yet."""
        self.target = target
        self.plans: list[Planned] = []
        self.runs: list[int] = []
        self.host_calls: dict[str, HostCall] = {}
        self._cache = cache
        self._stored = plans
        self._pool: Pool[Estimate] = Pool(THREADS)
        self._estimates: dict[str, Future[Estimate]] = {}

    def add(
        self,
        plan: Plan,
        chunks: Sequence[Chunk],
        donatable: tuple[int, ...],
        read: tuple[int, ...],
    ) -> Planned:
        """Note a plan, which is about to run."""
        planned = Planned(len(self.plans), plan, tuple(chunks), donatable, read)
        self.plans.append(planned)
        return planned

    def ran(self, planned: Planned, reason: str) -> None:
        """Note a run of a plan, and why its trace was cut; from the second on it is compiled."""
        planned.cuts[reason] += 1
        if planned.runs == 2:
            self.submit_all([planned])
        if len(self.runs) < MOST_RUNS:
            self.runs.append(planned.number)

    def refused(self, node: Node, reason: str) -> None:
        """Note an operation that runs on the host because the target cannot run it."""
        self.host_calls.setdefault(f"{node.op} {node.describe_operands()}", HostCall(node, reason))

    def submit(self, chunk: Chunk, variant: Variant = AS_IT_IS) -> Future[Estimate]:
        """The estimate of a chunk, once it is there; equal chunks are compiled once."""
        key = self._key(chunk, variant)
        if key.digest not in self._estimates:
            self._estimates[key.digest] = self._pool.submit(lambda: self._find(chunk, key, variant))
        return self._estimates[key.digest]

    def submit_all(self, plans: Sequence[Planned]) -> None:
        """Compile what plans consist of, different chunks in parallel."""
        for planned in plans:
            for chunk in planned.chunks:
                self.submit(chunk)

    def digest(self, chunk: Chunk) -> str:
        """What names a chunk among those for this target."""
        return self._key(chunk).digest

    def estimate(self, chunk: Chunk, variant: Variant = AS_IT_IS) -> Estimate:
        """What ``submit`` is for, waited for: as long as the target waits for its compiler."""
        return self.submit(chunk, variant).result()

    def culprits(self, chunk: Chunk) -> list[tuple[Node, Estimate]]:
        """The operations of a refused chunk that are refused alone as well."""
        alone = [(node, single(node)) for node in chunk.nodes]
        found = [(node, self.submit(one)) for node, one in alone]
        answers = [(node, future.result()) for node, future in found]
        return [(node, answer) for node, answer in answers if answer.error]

    def pending(self) -> int:
        """Chunks that are not compiled yet."""
        return sum(not future.done() for future in self._estimates.values())

    def host_key(self, chunk: Chunk) -> Key:
        """The key under which a host of the target asks for the chunk's executable."""
        return key_of(self.target, chunk)

    def digests(self) -> list[str]:
        """What a host of the target needs: executables, and plans, which are stored now.

        Executables that the cache has lost are compiled again. A plan goes without where one of
        its executables can only be made on the target's own host.
        """
        found: dict[str, None] = {}
        self.submit_all(self.plans)
        for planned in self.plans:
            kept = [self._kept(chunk) for chunk in planned.chunks]
            names = [(key.digest, key.label) for key in kept if key is not None]
            found |= dict.fromkeys(digest for digest, _ in names)
            if None not in kept:
                plan = planned.plan
                key_of_plan = self._stored.key(
                    self.target, plan.trace, plan.live, planned.donatable, planned.read
                )
                self._stored.save(key_of_plan, self.target, plan, tuple(names))
                found |= {} if key_of_plan is None else {key_of_plan.digest: None}
        self._cache.flush()
        return list(found)

    def _kept(self, chunk: Chunk) -> Key | None:
        """The key of a chunk's executable, which the cache has; ``None`` where there is none."""
        if self.estimate(chunk).error:
            return None
        key = self.host_key(chunk)
        if self._cache.get(key, bytes) is None:
            self._store(chunk, self.target.compile(chunk)[1])
            return key if self._cache.get(key, bytes) is not None else None
        return key

    def finish(self) -> None:
        """Wait for the compiler and say on the standard error what it made: ``FUSE_TARGET``."""
        self.submit_all(self.plans)
        name, waiting = self.target.name, self.pending()
        if waiting:
            sys.stderr.write(f"fuse: {name}: waiting for {waiting} chunks to compile\n")
        answers = [future.result() for future in list(self._estimates.values())]
        refused = [answer for answer in answers if answer.error]
        ticks = sum(
            self.target.machine.total(self.estimate(chunk)) for number in self.runs
            for chunk in self.plans[number].chunks
        )  # fmt: skip
        sys.stderr.write(
            f"fuse: {name}: {len(answers)} chunks, {len(refused)} refused, {self._cost(ticks)}; "
            f"no {self.target.kind} ran)\n"
        )
        for answer in refused:
            sys.stderr.write(f"fuse: {name}: {answer.kind}: {answer.error.splitlines()[0]}\n")
        self.target.close()

    def _cost(self, ticks: int) -> str:
        machine, traces = self.target.machine, f"for all of {len(self.runs)} traces"
        if machine.counts_cycles:
            return f"{ticks:,} cycles {traces} (its compiler's estimate"
        seconds = machine.seconds(ticks) * 1e3
        return f"{seconds:,.3f} ms at least {traces} (by its published peaks"

    def _key(self, chunk: Chunk, variant: Variant = AS_IT_IS) -> Key:
        fields = {"kind": "estimate", **program_fields(chunk), **compile_fields(self.target)}
        fields |= self.target.describe()
        if variant.precision:
            fields["float32 products"] = variant.precision
        return Key.of(fields, label=f"estimate for {self.target.name}{first_line(chunk)}")

    def _find(self, chunk: Chunk, key: Key, variant: Variant) -> Estimate:
        stored = self._cache.get(key, Estimate.from_bytes)
        if stored is not None:
            return stored
        estimate, executable = self.target.compile(chunk, variant)
        if executable and variant == AS_IT_IS:
            self._store(chunk, executable)
        if estimate.kind in ("", "refused"):  # an abort may have been the machine's fault
            self._cache.put(key, estimate, Estimate.to_bytes)
        return estimate

    def _store(self, chunk: Chunk, executable: bytes) -> None:
        if executable:
            self._cache.put(self.host_key(chunk), executable, bytes)


def single(node: Node) -> Chunk:
    """A chunk of one operation, operands as they lie: the same one for equal operations."""
    (node,), _ = renumber([node])
    layouts = {one.value: one.layout for one in node.operands if one.initialised}
    inputs = tuple(Leaf(value, layout) for value, layout in layouts.items())
    slots = {old: at for at, (_, old) in enumerate(node.dynamic)}
    scalars = len(slots)
    alone = replace(
        node,
        dynamic=tuple((place, slots[old]) for place, old in node.dynamic),
        random=None if node.random is None else scalars,
    )
    scalars += 0 if node.random is None else 2
    return Chunk((alone,), inputs, tuple(node.results()), (), scalars)
