"""A distributed step as one program of all ranks: captured while it runs, compiled for a target.

What a step does is what it always does: a cut at each collective, and chunks between them that may
differ from rank to rank. Here a step that has run so is written down, chunks and collectives and
what flows between them, and becomes one SPMD program. It is the form in which a TPU's compiler can
move data beside computing. A loop trains by it where it asks for that: ``training``.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from fuse.backends.base import COMPILER_SECONDS, Chunk
from fuse.backends.estimates import Estimate
from fuse.device import lazy
from fuse.distributed import agreement, runtime
from fuse.errors import FuseError, describe

if TYPE_CHECKING:
    from fuse.backends.xla.ranks.programs import Form
    from fuse.backends.xla.ranks.step import Part, Spec
    from fuse.engine.engine import Engine
    from fuse.engine.runnable import Runnable


@dataclass(frozen=True, slots=True)
class Captured:
    """A step that has run: its program, and with ``keep`` what this rank gave it and got.

    Attributes:
        program: ``fuse.backends.xla.ranks.step.Joined``.
        digest: equal on all ranks whose steps are the same program.
        words: the packed numbers of each chunk, uint32[n, 2].
        given: arrays, one for each of the program's inputs.
        got: arrays, one for each of its outputs.
    """

    program: Any
    digest: str
    words: tuple[Any, ...] = ()
    given: tuple[Any, ...] = ()
    got: tuple[Any, ...] = ()


def capture(step: Callable[[], object], keep: bool = False, copy: bool = True) -> Captured:
    """Run ``step`` once, and return what it did as one program.

    Its collectives have to be calls on whole tensors of the device by all ranks of the default
    group, and go by JAX's runtime: on a TPU or GPU always. On the CPU ``FUSE_COLLECTIVES=xla``
    asks for it; ``FUSE_TIER=compiled`` keeps PyTorch's kernels out.

    Args:
        step: what is run; what it returns is computed, and dropped; what it raises is raised here.
        keep: whether to hold what this rank gave the program and got.
        copy: whether that is copied to the host. Without, it is the backend's own arrays, some of
            which the step has consumed: they say what is the same from step to step.

    Raises:
        FuseError: the settings are others, which is said before the step runs; or it has called
            what no program of all ranks can hold.
    """
    core, engine = lazy.core(), lazy.engine()
    recording = begin(keep, copy)
    try:
        made = step()  # alive at the cut: what nobody holds is not computed
        core.cut("synchronize")
        engine.wait()
        del made
    finally:
        recording.stop()
    return recording.finish()


def begin(keep: bool = False, copy: bool = True) -> Recording:
    """Write down from now on what runs, as ``capture`` does, until the recording is stopped."""
    core, engine = lazy.core(), lazy.engine()
    against = obstacle()
    if against:
        raise FuseError(against)
    core.cut("synchronize")
    engine.wait()
    recording = Recording(engine, keep, copy)
    engine.inspector, engine.results, runtime.watcher = (
        recording.before,
        recording.after,
        recording.called,
    )
    return recording


def obstacle() -> str:
    """Which setting keeps steps from being captured; empty where none does."""
    engine = lazy.engine()
    if dist.is_initialized() and not runtime.is_used():
        return describe(
            "a step is captured where collectives go by JAX's runtime, and this group's do not",
            hint="set FUSE_COLLECTIVES=xla before the process starts, with FUSE_BACKEND=xla",
        )
    if engine.planning.compiler.background and engine.backend.shares_host_memory():
        return describe(
            "a step is captured as it is compiled, and here parts of it run uncompiled meanwhile",
            hint="set FUSE_TIER=compiled before the process starts",
        )
    return ""


def compile_for(target: str, captured: Captured, seconds: float = COMPILER_SECONDS) -> Estimate:
    """What a target's compiler says of the step on all its devices.

    Args:
        target: such as ``v5e:4x4``; as for ``fuse.compile_for``.
        captured: the step.
        seconds: the compiler's bound, in processor time.

    Returns:
        Its estimate; what it refuses is in ``error``.

    Raises:
        ConfigError: there is no such target, or its compiler is not installed.
    """
    opened = lazy.engine().backend.target(target, seconds)
    try:
        estimate: Estimate
        estimate, _ = opened.compile(captured.program)
        return estimate
    finally:
        opened.close()


def agreed(captured: Captured, group: dist.ProcessGroup | None = None) -> None:
    """Return once every rank has captured the same program: one step that all may run together.

    Every rank of the group has to call it.

    Args:
        captured: this rank's step.
        group: whose ranks; the default group where none is given.

    Raises:
        FuseError: on every rank, where one's program is another; it names the ranks that differ
            from the first, and what each has at the first place where they do.
    """
    agreement.agree(captured.program, captured.digest, group)


class Recording:
    """What has run since ``begin``. Arrays are held to the end: no two may have one identity."""

    def __init__(self, engine: Engine, keep: bool, copy: bool) -> None:
        self._forms = importlib.import_module("fuse.backends.xla.ranks.step")
        self._engine, self._keep, self._copy = engine, keep, copy
        self._lock = threading.Lock()
        self._arrays: dict[int, tuple[int, Any]] = {}
        self._count = 0
        self._inputs: dict[int, Spec] = {}
        self._given: dict[int, Any] = {}
        self._parts: list[Part] = []
        self._words: list[bytes] = []
        self._refused = ""

    def stop(self) -> None:
        """Write down no more."""
        self._engine.inspector = self._engine.results = runtime.watcher = None

    def before(self, runnable: Runnable, leaves: Sequence[Any], scalars: bytes) -> None:
        """A plan is about to run on these arrays and packed numbers."""
        trace = runnable.plan.trace
        with self._lock:
            layouts = [(leaf.layout.shape, leaf.layout.dtype) for leaf in trace.leaves]
            reads = [self._value(array, *of) for array, of in zip(leaves, layouts, strict=True)]
            chunk = Chunk(trace.nodes, trace.leaves, runnable.plan.live, (), trace.scalars)
            self._parts.append(self._forms.Part(chunk, tuple(reads), ()))
            self._words.append(scalars)

    def after(self, results: Sequence[Any]) -> None:
        """It has made these arrays."""
        with self._lock:
            at = max(i for i, part in enumerate(self._parts) if isinstance(part.what, Chunk))
            made = tuple(map(self._made, results))
            self._parts[at] = replace(self._parts[at], makes=made)

    def called(self, form: Form, sources: Sequence[Any], results: Sequence[Any]) -> None:
        """A collective has been carried out."""
        whole = not any(isinstance(source, torch.Tensor) for source in sources)
        if not whole or form.kind in ("scatter", "gather", "reduce") or not sources:
            self._refused = form.kind  # said at the end: the call itself is all right
            return
        with self._lock:
            reads = [
                self._value(array, (count,), form.dtype)
                for array, count in zip(sources, form.sources, strict=True)
            ]
            # The root of a broadcast keeps its arrays, which are the results from now on.
            results = results or sources
            shapes = tuple(tuple(result.shape) for result in results)
            makes = tuple(map(self._made, results))
            self._parts.append(self._forms.Part(form, tuple(reads), makes, shapes))

    def _value(self, array: Any, shape: tuple[int, ...], dtype: str) -> int:
        known = self._arrays.get(id(array))
        if known is not None:
            return known[0]
        value = self._made(array)
        self._inputs[value] = self._forms.Spec(tuple(shape), dtype)
        if self._keep:
            self._given[value] = self._kept(array, shape)
        return value

    def _kept(self, array: Any, shape: tuple[int, ...] | None = None) -> Any:
        if not self._copy:
            return array
        host = np.array(self._engine.arrays.read(array))
        return host if shape is None else host.reshape(shape)

    def _made(self, array: Any) -> int:
        self._count += 1
        self._arrays[id(array)] = self._count, array
        return self._count

    def finish(self) -> Captured:
        """The program, its values numbered in the order of its parts."""
        if self._refused:
            raise FuseError(
                describe(
                    f"{self._refused} cannot be part of a joined step",
                    hint="call it on whole tensors of the device that every rank has, or "
                    "leave it out of the step",
                )
            )
        # The core lets go of what the last trace read, and of what has died since, with the next.
        torch.zeros((), device="tpu")
        lazy.core().cut("synchronize")
        self._engine.wait()
        consumed = {
            value
            for value, array in self._arrays.values()
            if value in self._inputs and _is_consumed(array)
        }
        kept = self._alive()
        # A fake run is one thread's, and keeps the program's order.
        parts = self._parts if lazy.is_fake() else _in_order(self._parts, set(self._inputs))
        order = dict.fromkeys(value for part in parts for value in part.reads)
        inputs = [(value, self._inputs[value]) for value in order if value in self._inputs]
        numbers: dict[int, int] = {value: at for at, (value, _) in enumerate(inputs)}
        for part in parts:
            for value in part.makes:
                numbers[value] = len(numbers)
        outputs = sorted((numbers[value], got) for value, got in kept if value in numbers)
        program = self._forms.Joined(
            tuple(
                replace(
                    part,
                    reads=tuple(numbers[value] for value in part.reads),
                    makes=tuple(numbers[value] for value in part.makes),
                )
                for part in parts
            ),
            tuple((numbers[value], spec) for value, spec in inputs),
            tuple(value for value, _ in outputs),
            donated=tuple(sorted(numbers[value] for value in consumed)),
            ranks=dist.get_world_size() if dist.is_initialized() else 0,
        )
        words = tuple(np.frombuffer(one, np.uint32).reshape(-1, 2).copy() for one in self._words)
        return Captured(
            program,
            agreement.digest(program),
            words if self._keep else (),
            tuple(self._given[value] for value, _ in inputs) if self._keep else (),
            tuple(got for _, got in outputs) if self._keep else (),
        )

    def _alive(self) -> list[tuple[int, Any]]:
        """Values made here that somebody else holds, with what they are if that is kept."""
        made = {value for part in self._parts for value in part.makes}
        held = [(value, array) for value, array in self._arrays.values() if value in made]
        self._arrays.clear()
        found = []
        while held:
            value, array = held.pop()
            # Here it is `array` and the argument; a row of a stack takes no weak reference.
            elsewhere = sys.getrefcount(array) > 2
            if elsewhere and not _is_consumed(array):
                got = self._kept(array) if self._keep else None
                found.append((value, got))
        return found


def _in_order(parts: list[Part], inputs: set[int]) -> list[Part]:
    """Chunks as soon as what they read is there, collectives where nothing else can go on: alike
    on all ranks, whichever thread was faster."""
    known = set(inputs)
    queues = [
        [part for part in parts if isinstance(part.what, Chunk) is chunk] for chunk in (True, False)
    ]
    done: list[Part] = []
    while any(queues):
        queue = next(q for q in queues if q and known.issuperset(q[0].reads))
        part = queue.pop(0)
        known.update(part.makes)
        done.append(part)
    return done


def _is_consumed(array: Any) -> bool:
    """Whether a later chunk took the array's memory."""
    whole = array[0].array if isinstance(array, tuple) else array  # a row of a stack
    return bool(whole.is_deleted())


def run(captured: Captured) -> list[Any]:
    """Run the step's program with every other rank on what it was given when it was captured.

    For tests, which compare its results with ``captured.got``.

    Args:
        captured: a step that all ranks have captured, with ``keep``.

    Returns:
        Host arrays, one for each output.
    """
    program = runtime.Joined(captured.program)
    return [program.host(one) for one in program([*captured.words, *captured.given])]
