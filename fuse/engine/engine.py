"""The one file that joins planner, backends and cache.

The native core calls the ``Engine`` off the hot path: to describe a call it has never
seen, to plan a trace it has never cut, and once a chunk to run it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from fuse import config
from fuse.backends.base import Backend
from fuse.backends.registry import get_backend
from fuse.cache.background import call_at_exit
from fuse.engine import bridge
from fuse.engine.arrays import Arrays
from fuse.engine.calls import Calls
from fuse.engine.compiler import Counts
from fuse.engine.data_checks import DataChecks
from fuse.engine.debug import check_indices, finish
from fuse.engine.device_memory import DeviceMemory
from fuse.engine.executables import Executables, chunk_text
from fuse.engine.failures import failure
from fuse.engine.host_calls import HostCalls
from fuse.engine.host_reads import HostReads
from fuse.engine.operation_retry import Ways, retry
from fuse.engine.planning import Planning
from fuse.engine.profile import Activity, Here, Profile
from fuse.engine.run_ahead import RunAhead
from fuse.engine.runnable import Runnable, Started
from fuse.engine.stage_runner import StageRunner
from fuse.engine.targeted import Targeted
from fuse.engine.timeline import Timeline, span
from fuse.engine.warm_start import WarmStart
from fuse.errors import RescueWarning, describe, warn_or_print
from fuse.trace.drawing import dot
from fuse.trace.dynamic_scalars import Numbers
from fuse.trace.node import Node, Trace

EXIT_SECONDS = 0.2
"""The longest wait at exit for chunks that run: nobody will read what they make."""


class Engine:
    """Describes, plans, compiles and runs for the native core."""

    def __init__(self) -> None:
        """Starts the backend that the settings name."""
        self.backend: Backend = get_backend(config.backend())
        self.backend.start()
        self.chunks = self.retried = 0
        self.host_calls = HostCalls(self.backend.name)
        # The core reports to them by these names; the user's line is the frame above.
        self.host_fallback = self.host_calls.host_fallback
        self.memory = DeviceMemory(lambda: self.backend)
        self.memory_info, self.no_memory = self.memory.memory_info, self.memory.no_memory
        self.mode = config.mode()
        self.check: str | None = None
        self.max_operations = config.max_operations()
        self._run_ahead: RunAhead[Any] = RunAhead(
            config.in_flight_bytes(),
            lambda arrays: self.backend.wait(arrays),
            lambda arrays: self.backend.done(arrays),
        )
        self.observer: Timeline | None = None
        self.inspector: Callable[[Runnable, list[Any], bytes], None] | None = None
        self.results: Callable[[list[Any]], None] | None = None  # told of what was inspected
        self.executables = Executables()
        self.arrays = Arrays(self.backend)
        self.data_checks = DataChecks(lambda array: self.arrays.read(array))
        self.planning = Planning(self.backend, self.executables)
        self.open_target = self.planning.open_target
        self.recall = WarmStart(self.backend, self.executables)
        self._numbers = Numbers()
        self._host_reads = HostReads()
        self.calls = Calls(self.backend, self.planning.reject, self.host_calls, self._numbers)
        self._process = os.getpid()
        name = config.target()
        self.planning.targeted = None if name is None else self.open_target(name)
        call_at_exit(self._save)

    @property
    def tier(self) -> str:
        """How tiers are chosen: auto, compiled or uncompiled.

        Compiled where memory is not the host's, where executables are waited for, and where a host
        fallback is an error, which only a recorded call shows.
        """
        here = self.backend.shares_host_memory() and not self.planning.elsewhere()
        if not here or config.host_fallback() == "error":
            return "compiled"
        return config.tier() if self.planning.compiler.background else "compiled"

    @property
    def targeted(self) -> Targeted | None:
        """What is known of the program for the target that is set, if one is."""
        return self.planning.targeted

    def set_target(self, targeted: Targeted | None) -> None:
        """Plan for a target from now on, or no more; known streams must be forgotten with it."""
        self.planning.targeted = targeted
        self.calls.described.clear()

    # ---- a call never seen ------------------------------------------------------------

    def describe(
        self,
        name: str,
        args: tuple[Any, ...],
        operands: list[bridge.RawOperand],
        tensors: list[bridge.RawTensor],
        writes: list[bridge.RawWrite],
        results: list[bridge.RawResult],
    ) -> bridge.Description | None:
        """What ``Calls.describe`` makes of a call; ``None`` sends it to the host."""
        return self.calls.describe(bridge.RawCall(name, args, operands, tensors, writes, results))

    def generalise(self, node: Node, place: int) -> bridge.Bounds | None:
        """Whether a number may vary: see ``Calls.generalise``."""
        return self.calls.generalise(node, place)

    def plan(
        self,
        recorded: bridge.Recorded,
        live: tuple[int, ...],
        donatable: tuple[int, ...],
        read: tuple[int, ...],
        waits: bool = False,
    ) -> bridge.BoundPlan:
        """The plan of a trace: see ``Planning.plan``."""
        # Of single operations the sizes of a model's layers would seem to move.
        self.planning.buckets = self.mode == "fused"
        self.planning.checks = self.mode != "debug"  # which has its own
        return self.planning.plan(recorded, live, donatable, read, waits)

    # ---- running ----------------------------------------------------------------------

    def start(
        self,
        runnable: Runnable,
        started: Started | None,
        leaves: list[Any],
        scalars: bytes,
        stages: int,
        device: int = 0,
    ) -> Started | None:
        """Run the first ``stages`` of a plan whose trace is still being recorded.

        ``started`` is what this returned for fewer of them. ``leaves`` and ``scalars`` are the
        trace's so far: all that the stages read. ``None`` where it cannot be done now. A failure
        is counted by the core, and said when the whole plan runs, if it fails there as well.
        """
        if self.observer is not None or self.inspector is not None:
            return None  # they see whole traces, in order
        leaves = self.arrays.prepare(leaves, runnable.padding, device)
        if any(stage.pending is not None for stage in runnable.stages[:stages]):
            return None
        if runnable.setting != self.backend.setting():
            return None  # executables of another setting, which execute replaces
        slots = self._on(device).stages(runnable, leaves, scalars, started, stages)
        return Started(stages, slots[len(runnable.leaves) :])

    def execute(
        self,
        runnable: Runnable,
        leaves: list[Any],
        scalars: bytes,
        reason: str,
        started: Started | None = None,
        device: int = 0,
    ) -> list[Any]:
        """Run a plan; the arrays of its live values, in ascending order of value.

        ``leaves`` are in the trace's order; an array of another backend is replaced in the
        list by its conversion, which the core then keeps. ``reason`` names the cut's reason.
        ``started`` is what ``start`` returned last for this plan and trace, ``device`` the index of
        the device where the leaves are and the results are to be.
        """
        self._numbers.start()
        arrays, padding = self.arrays.prepare(leaves, runnable.padding, device), runnable.padding
        debug = self.mode == "debug"
        trace = runnable.plan.trace if padding is None else padding.trace
        if debug:
            check_indices(trace, [np.asarray(self.arrays.read(leaf)) for leaf in leaves], scalars)
        if padding is not None:
            scalars = padding.scalars(scalars)
        if runnable.setting != self.backend.setting():  # 0.1 us
            self.planning.rebind(runnable)
            started = None
        if self.inspector is not None:  # before the run, which may consume the leaves
            self.inspector(runnable, arrays, scalars)
        results = self._run(runnable, arrays, scalars, started, device)
        if self.results is not None:
            self.results(results)
        if padding is not None:
            results = padding.results(results)
        if not self.backend.shares_host_memory():
            self._host_reads.ran(runnable, results)
        if runnable.checked is not None:
            self.data_checks.add(results.pop(), runnable.checked)
        if debug:
            finish(self.backend, trace.nodes[-1], results, self.check, self.arrays.read)
        if self.observer is not None:
            self.observer.traces.append((reason, runnable))
        targeted = self.planning.targeted
        if targeted is not None and runnable.planned is not None:
            targeted.ran(runnable.planned, reason)
        return results

    def drawn(self, recorded: bridge.Recorded) -> str:
        """The calls of a trace in the language of Graphviz."""
        return dot([node for node, _ in recorded])

    def waits(self, runnable: Runnable) -> bool:
        """Whether an executable of the plan is still being made in the background."""
        pending = (stage.pending for stage in runnable.stages)
        return any(future is not None and not future.done() for future in pending)

    def retry(
        self,
        recorded: bridge.Recorded,
        live: tuple[int, ...],
        leaves: list[Any],
        scalars: bytes,
        why: str,
        device: int = 0,
    ) -> bridge.Retried:
        """What can be computed of a trace that failed: see ``operation_retry``.

        Also returns why the rest is lost: ``why``, what the trace's own error said, unless one
        operation is to blame; and the error to be raised instead of the trace's, if any. Warns
        where nothing is lost: it took long, or something ran on the host.
        """
        self.retried += 1
        leaves = self.arrays.prepare(leaves, None, device)
        ways = Ways(
            self.backend,
            self.planning.find,
            self.planning.compiler.run_uncompiled,
            self.planning.refusal,
            self.host_calls.at_a_cut,
            device,
        )
        made = retry(ways, Trace.of(recorded), live, leaves, scalars)
        if not made.fell_back and all(array is not None for array in made.arrays):
            warn_or_print(
                f"a chunk failed, and its operations ran one by one instead: {why}",
                RescueWarning,
                2,
            )
        return bridge.Retried(made.arrays, made.why or why, made.error)

    def _run(
        self,
        runnable: Runnable,
        leaves: list[Any],
        scalars: bytes,
        started: Started | None,
        device: int,
    ) -> list[Any]:
        runnable.runs += 1
        self.chunks += len(runnable.stages)
        try:
            stages = len(runnable.stages)
            slots = self._on(device).stages(runnable, leaves, scalars, started, stages)
            results = list(runnable.finish(slots))
        except Exception as error:
            text = chunk_text("running a chunk failed", runnable.plan.trace, error)
            raise failure(self.backend, text, error) from error
        self._run_ahead.add(results[runnable.token], runnable.nbytes)
        return results

    def _on(self, device: int) -> StageRunner:
        return StageRunner(self.backend, self.planning.compiler, self.observer, device)

    def put(self, data: torch.Tensor, dtype: str, shape: tuple[int, ...], device: int) -> Any:
        """An array from flat host memory in a buffer's order, which fuse owns from now on."""
        raw = data.view(torch.uint8).numpy() if data.numel() else np.empty(0, np.uint8)
        with span(self.observer, "writing", f"{raw.nbytes} bytes"):
            return self.arrays.put(raw, dtype, shape, device)

    def get(self, array: Any) -> np.ndarray:
        """The array's bytes on the host, flat."""
        self._host_reads.read(array)
        try:
            with span(self.observer, "reading"):
                found = self.arrays.read(array)
        except Exception as error:
            text = describe(f"a chunk failed while running: {error}")
            raise failure(self.backend, text, error) from error
        self.data_checks.check()
        return found.reshape(-1).view(np.uint8)

    def prepare_inference(self) -> None:
        """Import what PyTorch's shape inference in Python takes."""
        # Here, at the first operator that needs it: sympy comes with it, 0.2 to 0.4 s.
        importlib.import_module("torch.fx.experimental.symbolic_shapes")

    def wait(self) -> None:
        """Return once everything handed on so far has been computed."""
        with span(self.observer, "reading", "synchronize"):
            self._run_ahead.land_all()
        self.data_checks.check()

    def idle(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self._run_ahead.land_within(0.0)

    def watch(self, timeline: Timeline | None, waits: bool = False) -> None:
        """Write down what happens and when, until called with ``None``.

        ``waits`` if chunks wait meanwhile for executables that are made in the background.
        """
        self.observer = self.executables.timeline = timeline
        self.planning.compiler.waits = waits

    def profile(self, here: Callable[[], Here] | None) -> list[Activity]:
        """Begin to note what is done, and where ``here`` says the program is; ``None`` ends it.

        Returns what has been noted since it began.
        """
        noted = self.observer.activities() if isinstance(self.observer, Profile) else []
        self.watch(None if here is None else Profile(here))
        return noted

    def uses(self, name: str) -> bool:
        """Whether the backend ``name`` is the one in use."""
        return get_backend(name) is self.backend

    def switch(self, name: str) -> None:
        """Use another backend from now on; arrays are converted where they are next read."""
        self.wait()
        backend = get_backend(name)
        backend.start()
        self.backend = backend
        self.arrays.use(backend)
        self.planning.use(backend)
        self.host_calls.switch(backend.name)
        self.calls = Calls(backend, self.planning.reject, self.host_calls, self._numbers)

    def forget_streams_by(self, forget: Callable[[], None]) -> None:
        """``forget`` has the core forget its streams at the next trace, and is any thread's.

        It is called when the backend refuses what it was presumed to run.
        """

        def doubted() -> None:
            self.forget()
            forget()

        self.planning.when_doubted = doubted

    def forget(self) -> None:
        """Drop the descriptions of calls: an operator has another meaning from now on."""
        self.calls.described.clear()

    def compile_with(self, options: Mapping[str, str | bool | int | float]) -> None:
        """Compile with these options from now on; executables made with others are not used."""
        self.backend.compile_with(options)
        self.planning.use(self.backend)

    def close(self) -> bool:
        """Wait a moment for what runs; called once at the end of the process.

        Returns whether everything has ended: chunks, and the compiler.
        """
        landed = self._run_ahead.land_within(EXIT_SECONDS)
        self.executables.cache.close()
        return landed and self.planning.compiler.is_idle()

    def _save(self) -> None:
        if self._process != os.getpid():
            return  # a forked child: what it inherited is its parent's to store
        self.planning.save()
        self.recall.save()

    def stats(self) -> dict[str, Any]:
        """The engine's part of ``fuse.stats()``."""
        return {
            "chunks": self.chunks,
            "rescued_traces": self.retried,
            **self.executables.stats(),
            "background": self.planning.compiler.stats(),
            "families": self.planning.families.stats(),
            "host_fallbacks": dict(self.host_calls.fallbacks),
        }

    def reset_stats(self) -> None:
        """Set the counters to zero."""
        self.chunks = self.retried = 0
        self.host_calls.reset()
        self.planning.compiler.counts = Counts()
        self.planning.families.reset()
        self.executables.reset_stats()
