"""The TPU's compiler, libtpu, in a process of its own: see ``targets/worker.py``."""

from __future__ import annotations

from typing import Any, Final

from jax.experimental import topologies

from fuse.backends.xla.targets.worker import Compiler, Step
from fuse.backends.xla.tpu import costs
from fuse.backends.xla.tpu.bound import reader
from fuse.backends.xla.tpu.links import LINKS, Slice
from fuse.backends.xla.tpu.platform import TpuPlatform
from fuse.backends.xla.tpu.targets import TargetName, find
from fuse.backends.xla.tpu.timeline import Timeline

OPTIONS: Final[dict[str, str | bool]] = {"xla_enable_async_all_gather": True}
"""Of libtpu's compiler, for a step of several devices: gathers run beside computing, which they do
not by default. ``LIBTPU_INIT_ARGS`` has others."""


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
    return Compiler(
        devices,
        TpuPlatform(),
        costs.reader(machine),
        joined=Step(
            lambda program, cost: Timeline(program, machine, chips, cost), reader(machine), OPTIONS
        ),
    )
