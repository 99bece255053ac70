"""A process that compiles chunks for a target, one after the other.

The compiler may abort its process, or take for ever, so it has one of its own: a server for
``fuse.backends.processes.serve``. Which compiler, the target's own ``worker`` says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from fuse.backends.base import Chunk
from fuse.backends.decomposed import Decompositions
from fuse.backends.estimates import KERNEL, Estimate, Variant
from fuse.backends.functions import Shipment, is_function
from fuse.backends.xla.backend import surroundings
from fuse.backends.xla.executable import stored
from fuse.backends.xla.lowering import compiled, lowered
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.ranks import joined
from fuse.backends.xla.ranks.step import Joined
from fuse.backends.xla.rules.registry import RULES
from fuse.backends.xla.targets import account, hlo, schedule
from fuse.backends.xla.targets.account import Read

ERROR_LENGTH: Final = 2000


@dataclass(frozen=True, slots=True)
class Step:
    """How a program of all devices of a target is compiled, and read.

    Attributes:
        timeline: when a program computes and sends, by a reader of costs.
        bound: what an instruction takes at least, where no code was made.
        options: of the compiler.
    """

    timeline: Callable[[hlo.Program, Read], Any]
    bound: Read
    options: Mapping[str, str | bool]


class Compiler:
    """Compiles for the first device of a target; joined steps for all of them."""

    def __init__(
        self,
        devices: Sequence[Any],
        platform: Platform,
        read: Read,
        options: Mapping[str, str | bool] | None = None,
        joined: Step | None = None,
        unfinished: Sequence[str] = (),
    ) -> None:
        """``options`` of the compiler are beside the platform's, of targets alone; ``joined`` is
        what a program of all devices is compiled and read with, where that is known. Calls that
        begin as ``unfinished`` are for the device's own host: no executable with one is kept."""
        self.devices, self.platform, self.read = devices, platform, read
        self.options, self.joined = dict(options or {}), joined
        self.unfinished = tuple(unfinished)
        self.decompositions = Decompositions(lambda name: name in RULES or is_function(name))

    def fingerprint(self) -> dict[str, str]:
        """The fields of the same name of a backend on a host of the target."""
        return {**surroundings("xla", self.devices), **self.platform.fingerprint()}

    ready = fingerprint

    def answer(self, request: tuple[Chunk | Joined, Variant, Shipment]) -> tuple[Estimate, bytes]:
        """What the compiler makes of a chunk, an error included."""
        chunk, variant, functions = request
        torch.set_float32_matmul_precision(variant.precision)
        torch.backends.cudnn.allow_tf32 = variant.convolutions != "highest"
        try:
            functions.unpack()
            if isinstance(chunk, Joined):
                return self.compile_joined(chunk, variant.scheduled), b""
            return self.compile(chunk)
        except Exception as error:  # noqa: BLE001  (it is the answer)
            text = f"{type(error).__name__}: {error}"[:ERROR_LENGTH]
            return Estimate(error=text, kind="refused"), b""

    def compile(self, chunk: Chunk) -> tuple[Estimate, bytes]:
        """The estimate and the executable; raises what the compiler says."""
        started = time.perf_counter()
        program, passing = lowered(chunk, self.platform, self.decompositions, self.devices[0])
        made = compiled(program, self.platform, self.options)
        executable: Any = made.runtime_executable()
        text = hlo.parse(str(made.as_text()))
        found = estimate(made, text, self.read, time.perf_counter() - started)
        if self.unfinished and _calls(text, self.unfinished):
            return found, b""
        return found, stored(passing, executable.serialize())

    def compile_joined(self, step: Joined, as_scheduled: bool = False) -> Estimate:
        """The estimate of a step of several ranks, for all devices of the target.

        ``as_scheduled``: no further than the schedule; the process is of no use afterwards.
        """
        started = time.perf_counter()
        if step.ranks not in (0, len(self.devices)):
            raise ValueError(
                f"the step has {step.ranks} ranks, and the target {len(self.devices)} devices"
            )
        program = joined.lowered(
            step, self.platform, self.decompositions, self.devices, donate=True
        )
        options = self.options | dict(self.joined.options if self.joined else {})
        if as_scheduled and self.joined is not None:
            found = schedule.scheduled(
                lambda more: compiled(program, self.platform, {**options, **more})
            )
            text, read = found.program, self.joined.bound
            made = of_schedule(found, read, time.perf_counter() - started)
        else:
            whole = compiled(program, self.platform, options)
            text, read = hlo.parse(str(whole.as_text())), self.read
            made = estimate(whole, text, read, time.perf_counter() - started)
        if self.joined is not None:
            walked = self.joined.timeline(text, read)
            transfers = tuple(walked.transfers)
            made = replace(made, transfers=transfers, step_seconds=walked.now)
        return replace(made, options=options)


def of_schedule(found: schedule.Schedule, read: Read, seconds: float) -> Estimate:
    """What a scheduled program says of itself; ``read`` is what instructions take at least."""
    sums = account.sums(found.program, read)
    return Estimate(
        cycles=sums.cycles,
        costs=tuple(sums.costs),
        unestimated=dict(sums.unestimated),
        unknown_loops=sums.unknown_loops,
        flops=sum(cost.flops for cost in sums.costs),
        bytes_accessed=float(sum(cost.nbytes for cost in sums.costs)),
        arguments=found.program.arguments(),
        results=found.program.results(),
        temporary_bytes=found.temporary_bytes,
        alias_bytes=found.alias_bytes,
        seconds=seconds,
        scheduled=True,
    )


def _calls(program: hlo.Program, names: tuple[str, ...]) -> bool:
    """Whether a program has a call whose name begins so."""
    every = (one for computation in program.computations.values() for one in computation)
    return any(one.target().startswith(names) for one in every)


def estimate(made: Any, program: hlo.Program, read: Read, seconds: float) -> Estimate:
    """What a compiled program, whose text has been read, says of itself."""
    sums = account.sums(program, read)
    # Of these the compiler knows nothing.
    kernels = sum(cost.flops for cost in sums.costs if cost.opcode == KERNEL)
    # A GPU's compiler has no analysis of what it made without one.
    counted, moved = (
        sum(cost.flops for cost in sums.costs),
        float(sum(cost.nbytes for cost in sums.costs)),
    )
    memory, analysis = made.memory_analysis(), made.cost_analysis() or {}
    return Estimate(
        cycles=sums.cycles,
        costs=tuple(sums.costs),
        unestimated=dict(sums.unestimated),
        unknown_loops=sums.unknown_loops,
        flops=max(float(analysis.get("flops", counted)), 0.0) + kernels,
        bytes_accessed=max(float(analysis.get("bytes accessed", moved)), 0.0),
        arguments=program.arguments(),
        results=program.results(),
        temporary_bytes=memory.temp_size_in_bytes,
        alias_bytes=memory.alias_size_in_bytes,
        code_bytes=memory.generated_code_size_in_bytes,
        seconds=seconds,
    )
