"""From a recorded trace to a plan bound to its executables: what a stream's first cut asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fuse import config
from fuse.backends.base import Backend, Chunk
from fuse.engine.alone import refused_alone
from fuse.engine.bridge import BoundPlan, Recorded
from fuse.engine.compiler import Compiler
from fuse.engine.data_checks import with_checks
from fuse.engine.executables import Executables, Found, key_of
from fuse.engine.host_reads import ask_for
from fuse.engine.plan_store import Named, PlanStore
from fuse.engine.presumed import Presumed
from fuse.engine.resource_limits import HeldPlans, half_of_all_maps
from fuse.engine.runnable import Bound, Runnable, bind, bound, local_chunks
from fuse.engine.support_cache import SupportCache
from fuse.engine.targeted import Targeted
from fuse.engine.timeline import span
from fuse.errors import ExecutionError, VerifyError
from fuse.families.family import Families, Padding
from fuse.plan.changing import Forms
from fuse.plan.planner import plan as make_plan
from fuse.trace.node import Node, Trace


def in_background() -> bool:
    """Whether executables are made beside the program, as the settings ask for it.

    Not where it is to say what it needs: what is not there (the cache's mode ``only``), or what it
    has used (``FUSE_CACHE_RECORD``).
    """
    asked = config.cache_mode() == "only" or config.cache_record() is not None
    return config.tier() != "compiled" and not asked


class Planning:
    """Plans for one backend, and for a target where one is set. Used under the recorder's mutex.

    Attributes:
        verdicts: what the backend said of operations.
        presumed: what it is taken to run without being asked.
        when_doubted: called, by any thread, where it or its compiler refuses something.
        targeted: ``None``, or what is known of the program for a target.
        buckets: whether sizes that move are those of buckets; of plans made from now on.
        checks: whether data is checked; of plans made from now on.
        ahead: whether a known stream's first chunks run while the rest of it is recorded; of plans
            made from now on.
    """

    def __init__(self, backend: Backend, executables: Executables) -> None:
        """Plans with the settings' parameters; ``executables`` and their cache are shared."""
        self._backend = backend
        self._executables = executables
        self.compiler = Compiler(executables, in_background())
        self.support = SupportCache(backend, executables.cache)
        self.presumed = self._presuming()
        self.when_doubted: Callable[[], None] = lambda: None
        self.compiler.doubts = self._doubts
        self.targeted: Targeted | None = None
        self.ahead = self.buckets = self.checks = True
        self._plans = PlanStore(executables.cache)
        self._held = HeldPlans(config.memory_entries(), config.memory_bytes(), half_of_all_maps())
        self._forms = Forms()
        self.families = Families()
        self._crowded = False

    def use(self, backend: Backend) -> None:
        """Plan for this backend, or for this one as it is now, from now on."""
        self.support.save(final=True)
        self._backend = backend
        self.support = SupportCache(backend, self._executables.cache)
        self.presumed = self._presuming()

    def _presuming(self) -> Presumed:
        doubted = self.support.operators_refused()
        return Presumed(self._backend, lambda: self.compiler, doubted)

    @property
    def whole(self) -> int | None:
        """Operations up to which a trace is one chunk; ``None``: as the device says."""
        return self._plans.whole

    @whole.setter
    def whole(self, operations: int | None) -> None:
        self._plans.whole = operations

    def elsewhere(self) -> bool:
        """Whether plans are made for chunks that run on other cores than the recorder's."""
        return self.targeted is not None or not self._backend.wakes_host_threads()

    def open_target(self, name: str) -> Targeted:
        """What is to be known of the program for a target; raises ``ConfigError``."""
        return Targeted(self._backend.target(name), self._executables.cache, self._plans)

    def reject(self, node: Node) -> str | None:
        """Why the backend cannot run ``node``, or the target, or ``None``."""
        if self.targeted is None and self.presumed.takes(node):
            return None
        reason = self.support.reject(node)
        if reason is None:
            self.presumed.learn(node)
        if reason is None and self.targeted is not None:
            reason = self.targeted.target.reject(node)
            if reason is not None:
                self.targeted.refused(node, reason)
        return reason

    def refusal(self, node: Node) -> str | None:
        """Why the backend's compiler refuses ``node``, where that has been found out."""
        return self.support.refusal(node)

    def _doubts(self, chunk: Chunk, error: ExecutionError) -> bool:
        """Whether a chunk that could not be compiled has what the backend or its compiler refuses.

        The compiler is asked about its operations one by one, and what it refuses is remembered.
        """
        blamed = self.presumed.doubt(chunk, self.support.reject) or refused_alone(
            self._backend, chunk, error, self._compile_alone
        )
        for node, reason in blamed:
            self.support.refuse(node, reason)
        self.presumed.distrust(node.target for node, _ in blamed)
        if blamed:
            self.when_doubted()
        return bool(blamed)

    def _compile_alone(self, chunk: Chunk) -> Found:
        return self._executables.find(self._backend, chunk, key_of(self._backend, chunk))

    def plan(
        self,
        recorded: Recorded,
        live: tuple[int, ...],
        donatable: tuple[int, ...],
        read: tuple[int, ...],
        waits: bool = False,
    ) -> BoundPlan:
        """Plan and compile a trace so that the values ``live`` exist after it.

        The plan may consume the leaves ``donatable``; an earlier trace read the leaves ``read``.
        Where it ``waits``, no executable is made beside the program.
        """
        before, self.compiler.waits = self.compiler.waits, self.compiler.waits or waits
        try:
            return self._planned(recorded, live, donatable, read)
        finally:
            self.compiler.waits = before

    def _planned(
        self,
        recorded: Recorded,
        live: tuple[int, ...],
        donatable: tuple[int, ...],
        read: tuple[int, ...],
    ) -> BoundPlan:
        if self._crowded:  # at the last plan: what was to be forgotten has been since
            self._backend.give_back()
        trace = Trace.of(recorded)
        checked = with_checks(trace) if self._checks() else None
        if checked is not None:
            trace, live = checked.trace, (*live, checked.state)
        plan = self._padded(trace, live, donatable, read)
        if plan is None:
            plan = self._bound(trace, live, donatable, read)
        if checked is not None:
            plan.checked = checked
            if not self._backend.shares_host_memory():
                ask_for(plan, checked.state)
        self._held.add(plan)
        plan.read, plan.setting = read, self._backend.setting()
        self._crowded = self._held.are_too_many()
        if self._crowded:
            self._executables.cache.halve_memory()
        return BoundPlan(plan, self._crowded)

    def _checks(self) -> bool:
        """Whether data is checked: not for a target, and where there are values to check."""
        return self.targeted is None and self.checks and self._backend.runs_programs()

    def _padded(
        self,
        trace: Trace,
        live: tuple[int, ...],
        donatable: tuple[int, ...],
        read: tuple[int, ...],
    ) -> Runnable | None:
        """The plan of the trace at the sizes of buckets, where it is one of a family's.

        Not where the host reads memory of the device, and can run what is not compiled.
        """
        if self.targeted is not None or self._backend.shares_host_memory() or not self.buckets:
            return None
        found = self.families.padded(trace) if self._backend.runs_programs() else None
        if found is None or isinstance(found, str):
            return None
        try:
            runnable = self._bound(found.trace, live, donatable, read)
        except ExecutionError as error:
            self.families.refuse(trace, str(error))
            return None
        runnable.padding, runnable.starts = Padding.of(trace, found, live), ()
        decisions = (found.text(), *runnable.plan.decisions)
        runnable.plan = replace(runnable.plan, decisions=decisions)
        return runnable

    def _bound(
        self,
        trace: Trace,
        live: tuple[int, ...],
        donatable: tuple[int, ...],
        read: tuple[int, ...],
    ) -> Runnable:
        timeline, label = self._executables.timeline, f"{len(trace.nodes)} operations"
        with span(timeline, "planning", label):
            changed = self._forms.changed(trace)
        if self.targeted is not None:
            return self._for_target(self.targeted, trace, live, donatable, read, changed)
        with span(timeline, "planning", label):
            key = self._plans.key(self._backend, trace, live, donatable, read)
            stored = self._plans.find(key, self._backend, trace, live, donatable)
        if stored is not None:
            try:
                return bind(stored.plan, self._named(stored, read), self.ahead)
            except VerifyError as error:
                self._plans.refuse(key, str(error))
        with span(timeline, "planning", label):
            device = self._plans.borders(self._backend)
            plan = make_plan(trace, live, donatable, device, changed, self.elsewhere())
        found = self.find(local_chunks(plan, read))
        names = tuple((one.found.digest, one.found.label) for one in found)
        self._plans.save(key, self._backend, plan, names)
        self.support.save()
        return bind(plan, found, self.ahead)

    def _for_target(
        self,
        targeted: Targeted,
        trace: Trace,
        live: tuple[int, ...],
        donatable: tuple[int, ...],
        read: tuple[int, ...],
        changed: frozenset[int],
    ) -> Runnable:
        """Plan as the target would; the chunks run here, and are compiled for it beside that."""
        device = self._plans.borders(targeted.target)
        plan = make_plan(trace, live, donatable, device, changed, self.elsewhere())
        chunks = local_chunks(plan, read)
        runnable = bind(plan, self.find(chunks), self.ahead)
        runnable.planned = targeted.add(plan, chunks, donatable, read)
        self.support.save()
        return runnable

    def _named(self, stored: Named, read: tuple[int, ...]) -> list[Bound]:
        """The executables that a stored plan names, or, where one is missing, those found.

        Raises ``VerifyError`` where the plan names executables of other chunks.
        """
        named = self._executables.named(self._backend, stored.names, stored.plan.chunks)
        if named is not None:
            return list(map(Bound, named))
        found = self.find(local_chunks(stored.plan, read))
        if [one.found.digest for one in found] != [digest for digest, _ in stored.names]:
            raise VerifyError("a stored plan names executables of other chunks")
        return found

    def find(self, chunks: Sequence[Chunk]) -> list[Bound]:
        """What runs each chunk, found or compiled, different ones in parallel."""
        keys = [key_of(self._backend, chunk) for chunk in chunks]
        wanted = {key.digest: (chunk, key) for key, chunk in zip(keys, chunks, strict=True)}
        found = self.compiler.find(self._backend, wanted)
        return [
            bound(chunk, key, found[key.digest]) for chunk, key in zip(chunks, keys, strict=True)
        ]

    def rebind(self, runnable: Runnable) -> None:
        """Give a plan the executables of the backend's setting that holds now."""
        runnable.setting = self._backend.setting()
        found = self.find(local_chunks(runnable.plan, runnable.read))
        for stage, one in zip(runnable.stages, found, strict=True):
            stage.executable, stage.found = one.found.executable, one.found
            stage.chunk, stage.pending = one.chunk, one.pending

    def save(self) -> None:
        """At the end of the process: store the verdicts, and finish what the settings' target
        was asked."""
        if self.targeted is not None and config.target() is not None:
            self.targeted.finish()
        self.support.save(final=True)
