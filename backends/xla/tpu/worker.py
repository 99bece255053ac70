"""A process that compiles chunks for a target, one after the other.

The compiler may abort its process, or take for ever, so it has one of its own: a server for
``fuse.backends.processes.serve``.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final

import jax
import torch
from jax.experimental import topologies

from fuse.backends.base import Chunk
from fuse.backends.decomposed import Decompositions
from fuse.backends.estimates import Estimate, Machine, Variant
from fuse.backends.functions import Shipment, is_function
from fuse.backends.xla.backend import surroundings
from fuse.backends.xla.executable import stored
from fuse.backends.xla.lowering import lowered
from fuse.backends.xla.ranks import joined
from fuse.backends.xla.ranks.step import Joined
from fuse.backends.xla.rules.registry import RULES
from fuse.backends.xla.tpu import hlo
from fuse.backends.xla.tpu.links import LINKS, Slice
from fuse.backends.xla.tpu.platform import TpuPlatform
from fuse.backends.xla.tpu.targets import TargetName, parse
from fuse.backends.xla.tpu.timeline import Timeline

ERROR_LENGTH: Final = 2000


def topology(target: TargetName) -> Any:
    """JAX's description of a target's devices; raises what libtpu says of one that it lacks."""
    more: dict[str, Any] = {}
    if target.one_chip:
        more["chips_per_host_bounds"] = (1, 1, 1)
    if target.generation.config != "default":
        more["chip_config_name"] = target.generation.config
    found: Any = topologies.get_topology_desc(platform="tpu", topology_name=target.topology, **more)
    return found


class Compiler:
    """Compiles for the first device of a target; joined steps for all of them."""

    def __init__(self, target: TargetName) -> None:
        self.devices = topology(target).devices
        self.machine = target.generation.machine
        self.platform = TpuPlatform()
        self.decompositions = Decompositions(lambda name: name in RULES or is_function(name))

    def fingerprint(self) -> dict[str, str]:
        """The fields of the same name of a backend on a host of the target."""
        return {**surroundings("xla", self.devices), **self.platform.fingerprint()}

    ready = fingerprint

    def answer(self, request: tuple[Chunk | Joined, Variant, Shipment]) -> tuple[Estimate, bytes]:
        """What the compiler makes of a chunk, an error included."""
        chunk, variant, functions = request
        torch.set_float32_matmul_precision(variant.precision)
        try:
            functions.unpack()
            if isinstance(chunk, Joined):
                return self.compile_joined(chunk, variant)
            return self.compile(chunk, variant)
        except Exception as error:  # noqa: BLE001  (it is the answer)
            text = f"{type(error).__name__}: {error}"[:ERROR_LENGTH]
            return Estimate(error=text, kind="refused"), b""

    def compile(self, chunk: Chunk, variant: Variant) -> tuple[Estimate, bytes]:
        """The estimate and the executable; raises what the compiler says."""
        started = time.perf_counter()
        program, passing = lowered(chunk, self.platform, self.decompositions, self.devices[0])
        with jax.enable_x64(True):
            compiled = program.compile(self.platform.options(program))
        executable: Any = compiled.runtime_executable()
        return estimate(compiled, self.machine, time.perf_counter() - started), stored(
            passing, executable.serialize()
        )

    def compile_joined(self, step: Joined, variant: Variant) -> tuple[Estimate, bytes]:
        """The same of a step of several ranks, for all devices of the target."""
        started = time.perf_counter()
        ranks = max((1 + max(form.members, default=-1) for form in step.forms()), default=0)
        if ranks not in (0, len(self.devices)):
            raise ValueError(
                f"the step has {ranks} ranks, and the target {len(self.devices)} devices"
            )
        program = joined.lowered(
            step, self.platform, self.decompositions, self.devices, donate=True
        )
        with jax.enable_x64(True):
            compiled = program.compile(self.platform.options(program))
        found = estimate(compiled, self.machine, time.perf_counter() - started)
        timeline = self.timeline(compiled.as_text())
        step = timeline.now
        return replace(found, transfers=tuple(timeline.transfers), step_seconds=step), b""

    def timeline(self, text: str) -> Timeline:
        """When an optimised program of all devices computes and sends."""
        places = tuple(tuple(device.coords) for device in self.devices)
        links = LINKS[self.machine.name]
        return Timeline(hlo.parse(text), self.machine, Slice(links, places))


def estimate(compiled: Any, machine: Machine, seconds: float) -> Estimate:
    """What a compiled program says of itself, and its kernels of their work."""
    program = hlo.parse(compiled.as_text())
    sums = hlo.sums(program, machine)
    memory, analysis = compiled.memory_analysis(), compiled.cost_analysis() or {}
    return Estimate(
        cycles=sums.cycles,
        costs=tuple(sums.costs),
        unestimated=dict(sums.unestimated),
        unknown_loops=sums.unknown_loops,
        flops=max(float(analysis.get("flops", 0.0)), 0.0) + sums.stated_flops,
        bytes_accessed=max(float(analysis.get("bytes accessed", 0.0)), 0.0),
        arguments=program.arguments(),
        results=program.results(),
        temporary_bytes=memory.temp_size_in_bytes,
        alias_bytes=memory.alias_size_in_bytes,
        code_bytes=memory.generated_code_size_in_bytes,
        seconds=seconds,
    )


def create(name: str) -> Compiler:
    """The compiler for the target of that name; raises what libtpu says of it."""
    return Compiler(parse(name))
