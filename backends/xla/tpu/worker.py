"""The TPU's compiler, libtpu, in a process of its own: see ``targets/worker.py``."""

from __future__ import annotations

from typing import Any

from jax.experimental import topologies

from fuse.backends.xla.targets.worker import Compiler
from fuse.backends.xla.tpu.costs import reader
from fuse.backends.xla.tpu.links import LINKS, Slice
from fuse.backends.xla.tpu.platform import TpuPlatform
from fuse.backends.xla.tpu.targets import TargetName, find
from fuse.backends.xla.tpu.timeline import Timeline


def topology(target: TargetName) -> Any:
    """JAX's description of a target's devices; raises what libtpu says of one that it lacks."""
    more: dict[str, Any] = {}
    if target.one_chip:
        more["chips_per_host_bounds"] = (1, 1, 1)
    if target.generation.config != "default":
        more["chip_config_name"] = target.generation.config
    found: Any = topologies.get_topology_desc(
        platform="tpu", topology_name=target.topology(), **more
    )
    return found


def create(name: str) -> Compiler:
    """The compiler for the target of that name; raises what libtpu says of it."""
    target = find(name)
    assert target is not None, f"no TPU is called {name}"
    devices, machine = topology(target).devices, target.generation.machine
    places = tuple(tuple(device.coords) for device in devices)
    chips = Slice(LINKS[machine.name], places)
    read = reader(machine)
    return Compiler(
        devices,
        TpuPlatform(),
        read,
        timeline=lambda program: Timeline(program, machine, chips, read),
    )
