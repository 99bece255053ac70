"""JAX's multi-process runtime, once a process: who takes part, and the calls of programs.

On the CPU a second client is made beside the one that the device uses: it may be made after that
has started, which keeps its own numbering, and the two share the host's memory. Elsewhere
``jax.distributed`` has to be initialised before the device starts, and its client serves both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src.lib import _jax, xla_client
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fuse.backends.decomposed import Decompositions
from fuse.backends.functions import is_function
from fuse.backends.xla import dispatch
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.ranks.joined import lowered
from fuse.backends.xla.ranks.programs import AXIS, Form, program
from fuse.backends.xla.ranks.step import Joined
from fuse.backends.xla.rules.registry import RULES

MOST_PROGRAMS = 1024
"""Collectives of different forms that one group keeps compiled."""


class Runtime:
    """This process's place among those that run one program together."""

    def __init__(
        self, client: Any, devices: Sequence[jax.Device], own: jax.Device, home: jax.Device
    ) -> None:
        """``devices`` by process; ``own`` of them is this one's, ``home`` the one of ``tpu:0``."""
        self._client, self._devices, self._own, self._home = client, devices, own, home

    @staticmethod
    def on_cpu(address: str, process: int, processes: int, seconds: int, interface: str) -> Runtime:
        """A second client for the CPU, whose collectives are XLA's own over gloo.

        Args:
            address: ``host:port`` of the coordination service.
            process: this process's number among ``processes``.
            seconds: how long to wait for the others, and for one that no longer answers.
            interface: the address that this host's collectives listen on.
        """
        client = _jax.get_distributed_runtime_client(
            address,
            process,
            init_timeout=seconds,
            heartbeat_timeout=max(seconds, 10),
            shutdown_timeout=5,
            shutdown_on_destruction=True,
            missed_heartbeat_callback=_note,
            use_compression=True,
        )
        client.connect()
        backend: Any = xla_client.make_cpu_client(
            distributed_client=client,
            node_id=process,
            num_nodes=processes,
            collectives=_jax.make_gloo_tcp_collectives(client, hostname=interface),
            num_devices=1,
        )
        devices = sorted(backend.devices(), key=lambda device: device.process_index)
        return Runtime(client, devices, backend.local_devices()[0], jax.local_devices()[0])

    @staticmethod
    def of_jax() -> Runtime:
        """The one that ``jax.distributed`` has been initialised for; one device a process."""
        devices = sorted(jax.devices(), key=lambda device: device.process_index)
        own = jax.local_devices()[0]
        if len(devices) != jax.process_count():
            raise RuntimeError(
                f"{len(devices)} devices in {jax.process_count()} processes: start one process a "
                "device"
            )
        return Runtime(None, devices, own, own)

    @staticmethod
    def initialised(
        address: str, process: int, processes: int, seconds: int, local: int
    ) -> Runtime:
        """``jax.distributed``, initialised: before the device starts. One device a process.

        Args:
            address: ``host:port`` of the coordination service, which process 0 runs.
            process: this process's number among ``processes``.
            seconds: how long to wait for the others.
            local: this process's number on its host, and so its device's where it sees several.
        """
        jax.distributed.initialize(
            address,
            processes,
            process,
            local_device_ids=[local],
            initialization_timeout=seconds,
            coordinator_bind_address=address,
        )
        return Runtime.of_jax()

    def close(self) -> None:
        """Leave: no program can be run any more."""
        if self._client is not None:
            self._client.shutdown()

    def group(self, processes: Sequence[int]) -> Group:
        """The programs of some of the processes, in this order."""
        return Group(self, [self._devices[process] for process in processes])

    def joined(self, step: Joined) -> Callable[[Sequence[jax.Array | np.ndarray]], list[jax.Array]]:
        """A step's program, compiled: a function of words and inputs, in order, that all processes
        call together. Given are host arrays, or results, which are shards of the runtime's.
        """
        platform = Platform(self._own.platform)
        decompositions = Decompositions(lambda name: name in RULES or is_function(name))
        compiled = lowered(step, platform, decompositions, self._devices).compile()
        sharding = NamedSharding(Mesh(np.array(self._devices), (AXIS,)), PartitionSpec(AXIS))
        ranks = len(self._devices)

        def shard(array: jax.Array | np.ndarray) -> jax.Array:
            if isinstance(array, jax.Array) and array.sharding == sharding:
                return array
            own = dispatch.placed(np.asarray(array)[None], self._own)
            shape = (ranks, *array.shape)
            return jax.make_array_from_single_device_arrays(shape, sharding, [own])

        def run(given: Sequence[jax.Array | np.ndarray]) -> list[jax.Array]:
            with jax.enable_x64(True):
                return list(compiled(*map(shard, given)))

        return run

    @staticmethod
    def shard_of(result: jax.Array) -> np.ndarray:
        """This process's part of a result of ``joined``."""
        found: np.ndarray = np.asarray(result.addressable_data(0))[0]
        return found

    @property
    def own(self) -> jax.Device:
        """This process's device among those of the runtime."""
        return self._own

    def inward(self, value: jax.Array | np.ndarray) -> jax.Array:
        """An array of the device, or host memory, as one of the runtime's."""
        if isinstance(value, jax.Array) and self._own is self._home:
            return value
        host = value if isinstance(value, np.ndarray) else np.asarray(value)
        return dispatch.placed(host, self._own)

    def outward(self, array: jax.Array) -> jax.Array:
        """The runtime's array as one of the device, which waits for it where it is another's."""
        if self._own is self._home:
            return array
        return dispatch.placed(np.asarray(array), self._home)


def _note(*_: object) -> None:
    """The coordination service is gone. The group's own check says so at its next call: the
    runtime's answer to it would be the end of the process."""


class Group:
    """Final. The programs of one process group."""

    def __init__(self, runtime: Runtime, devices: Sequence[jax.Device]) -> None:
        """``devices`` are the members', in the order of their ranks."""
        self._runtime = runtime
        mesh = Mesh(np.array(devices), (AXIS,))
        self._sharded = NamedSharding(mesh, PartitionSpec(AXIS))
        self._mesh = mesh
        self.rank = next(at for at, device in enumerate(devices) if device is runtime.own)
        self.ranks = len(devices)
        self._compiled = functools.lru_cache(MOST_PROGRAMS)(self._compile)
        self.on_cpu = devices[0].platform == "cpu"

    def run(self, form: Form, given: Sequence[jax.Array | np.ndarray]) -> list[jax.Array]:
        """Run a collective's program with every other rank; the results, flat, on the device.

        ``given`` are flat arrays or host memory; none where only the root has sources.
        """
        with jax.enable_x64(True):
            sources = given or [np.zeros(count, form.dtype) for count in form.sources]
            shards = [
                jax.make_array_from_single_device_arrays(
                    (self.ranks * count,), self._sharded, [self._runtime.inward(source)]
                )
                for source, count in zip(sources, form.sources, strict=True)
            ]
            results = self._compiled(form)(*shards)
            return [self._runtime.outward(result.addressable_data(0)) for result in results]

    def _compile(self, form: Form) -> jax.stages.Compiled:
        spec = PartitionSpec(AXIS)
        mapped = jax.shard_map(
            program(form), mesh=self._mesh, in_specs=spec, out_specs=spec, check_vma=False
        )
        specs = [
            jax.ShapeDtypeStruct((self.ranks * count,), form.dtype, sharding=self._sharded)
            for count in form.sources
        ]
        return jax.jit(mapped, out_shardings=self._sharded).lower(*specs).compile()
