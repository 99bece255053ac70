"""XLA through JAX: the backend that runs on this machine's CPU, a GPU or a TPU."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import jaxlib
import ml_dtypes  # noqa: F401  (registers bfloat16 and the float8 types with NumPy)
import numpy as np
from jax._src import lib as jax_lib

import fuse.backends.xla.rules  # noqa: F401  (fills the table of rules)
from fuse import config
from fuse.backends.base import COMPILER_SECONDS, Backend, Chunk, CompileWorkers, Target
from fuse.backends.decomposed import MOST_SIGNATURES, Decompositions
from fuse.backends.functions import is_function, program_of
from fuse.backends.precision import described
from fuse.backends.xla import dispatch
from fuse.backends.xla.cpu.kernels import KERNELS
from fuse.backends.xla.cpu.platform import CpuPlatform
from fuse.backends.xla.cpu.workers import CpuWorkers
from fuse.backends.xla.executable import XlaExecutable
from fuse.backends.xla.gpu.platform import GpuPlatform
from fuse.backends.xla.gpu.targets import plugin
from fuse.backends.xla.lowering import compiled, lowered, rejection
from fuse.backends.xla.packed_arrays import PackedArrays, Part, Row
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.presumed import presumed
from fuse.backends.xla.rules.registry import RULES, STATIC_SCALARS
from fuse.backends.xla.targets.names import parse
from fuse.backends.xla.targets.target import XlaTarget
from fuse.backends.xla.tpu.platform import TpuPlatform
from fuse.bounded import Bounded
from fuse.trace.bind import named
from fuse.trace.borders import Borders
from fuse.trace.node import HostArg, Node, NumberArg
from fuse.trace.signature import signature

LIBRARIES: Final = {"kernels": KERNELS}
"""The native libraries of the platforms, for whoever builds them before their first use."""
_PASSING: Final = ("ABORTED", "CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNAVAILABLE")
"""Statuses of XLA's errors that say nothing of the program."""
_OPTION: Final = "No such compile option"
"""Nor does this, of an option that the user gave."""


def surroundings(name: str, devices: Sequence[jax.Device]) -> dict[str, str]:
    """What executables for the first of ``devices`` depend on, without what its platform adds."""
    device = devices[0]
    found = {
        "backend": name,
        "platform": device.platform,
        "device kind": device.device_kind,
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "compiler": plugin(device.platform) or str(getattr(device.client, "platform_version", "")),
        "xla flags": os.environ.get("XLA_FLAGS", ""),
    }
    if device.platform != "tpu":  # there they are compiled elsewhere, for any number of chips
        found["device count"] = str(len(devices))
    return found


def platform_of(device: jax.Device) -> Platform:
    """The platform of one of JAX's devices."""
    name = device.platform
    if name == "cpu":
        return CpuPlatform()
    if name == "tpu":
        return TpuPlatform()
    return GpuPlatform(_capability(device)) if name in ("gpu", "cuda", "rocm") else Platform(name)


def _capability(device: jax.Device) -> tuple[int, int]:
    """NVIDIA's, which JAX gives as ``9.0``; zeros for what has none."""
    found = re.fullmatch(r"(\d+)\.(\d+)", str(getattr(device, "compute_capability", "")))
    return (int(found[1]), int(found[2])) if found else (0, 0)


class XlaBackend(Backend):
    """Final. One instance a process; its platform is the best one JAX finds."""

    name = "xla"

    def __init__(self) -> None:
        if config.target() is not None:  # programs run here; JAX would look for a TPU of ours
            jax.config.update("jax_platforms", "cpu")
        self.devices = jax.devices()
        self.platform = platform_of(self.devices[0])
        self.decompositions = Decompositions(self.has_rule)
        self._rejections: Bounded[str, str | None] = Bounded(MOST_SIGNATURES)
        self._stacks = PackedArrays(on_host=self.shares_host_memory())

    @functools.cached_property
    def _fingerprint(self) -> dict[str, str]:
        added = {"options": repr(sorted(self.options.items()))} if self.options else {}
        return {**surroundings(self.name, self.devices), **self.platform.fingerprint(), **added}

    def fingerprint(self) -> dict[str, str]:  # noqa: D102
        setting = self.setting()
        return self._fingerprint | ({"float32 products": setting} if setting else {})

    def setting(self) -> str:
        """How exact float32 products and convolutions are; on the CPU platform they always are."""
        return "" if self.platform.name == "cpu" else described(self.platform.name)

    def device_count(self) -> int:  # noqa: D102
        return len(self.devices)

    def device_name(self) -> str:  # noqa: D102
        return str(self.devices[0].device_kind)

    def shares_host_memory(self) -> bool:  # noqa: D102
        return self.platform.name == "cpu"

    def wakes_host_threads(self) -> bool:  # noqa: D102
        return self.shares_host_memory()

    def runs_programs(self) -> bool:  # noqa: D102
        return True

    def borders(self) -> Borders:  # noqa: D102
        return self.platform.borders()

    def start(self) -> None:  # noqa: D102
        self.platform.start()
        self.__dict__.pop("_fingerprint", None)  # which names the kernels

    def compile_with(self, options: Mapping[str, str | bool | int | float]) -> None:  # noqa: D102
        self.options = dict(options)
        self.__dict__.pop("_fingerprint", None)

    def collector(self) -> tuple[Callable[..., object], Callable[[], object]] | None:  # noqa: D102
        callback = getattr(jax_lib, "_xla_gc_callback", None)
        collect = getattr(getattr(jax_lib, "_jax", None), "collect_garbage", None)
        return None if callback is None or collect is None else (callback, collect)

    def give_back(self) -> None:  # noqa: D102
        self.platform.give_back()

    def memory_bytes(self, device: int) -> int:  # noqa: D102
        known = self.devices[device].memory_stats() or {}
        return int(known.get("bytes_limit") or super().memory_bytes(device))

    def memory_in_use(self, device: int) -> int | None:  # noqa: D102
        known = self.devices[device].memory_stats() or {}
        return int(known["bytes_in_use"]) if "bytes_in_use" in known else None

    def has_rule(self, overload: str) -> bool:  # noqa: D102
        return overload in RULES or is_function(overload)

    def reject(self, node: Node) -> str | None:
        """Trace the node's rule abstractly, once for each distinct signature."""
        return self._rejections.memo(signature(node), lambda: self._try(node))

    def _try(self, node: Node) -> str | None:
        return rejection(node, self.platform, self.decompositions)

    def presumes(self, node: Node) -> bool:  # noqa: D102
        return presumed(node, self.platform)

    def static_places(self, node: Node) -> tuple[int, ...]:  # noqa: D102
        if not self.has_rule(node.target):
            return tuple(
                argument.place
                for argument in node.args
                if isinstance(argument, (HostArg, NumberArg)) and argument.place is not None
            )
        names = STATIC_SCALARS.get(node.target, frozenset())
        return tuple(
            value.place
            for name, value in named(node).items()
            if name in names and isinstance(value, (HostArg, NumberArg)) and value.place is not None
        )

    def compile(self, chunk: Chunk) -> XlaExecutable:  # noqa: D102
        program, passing = lowered(chunk, self.platform, self.decompositions)
        made = compiled(program, self.platform, self.options)
        called = filter(None, (program_of(node.target) for node in chunk.nodes))
        storable = all(function.storable for function in called)
        loaded = made.runtime_executable()
        return XlaExecutable(
            loaded, passing, self._stacks, self.platform.held_bytes, made, storable
        )

    @functools.cached_property
    def _workers(self) -> CpuWorkers:
        return CpuWorkers(self)

    def workers(self) -> CompileWorkers | None:
        """On the CPU platform, whose compiler takes the program's cores and JAX Python's lock."""
        return self._workers if self.platform.name == "cpu" else None

    def target(self, name: str, seconds: float = COMPILER_SECONDS) -> Target:  # noqa: D102
        return XlaTarget(parse(name), seconds)

    def execute(  # noqa: D102
        self, executable: XlaExecutable, scalars: bytes, arrays: Sequence[Part]
    ) -> list[Part]:
        return executable(scalars, arrays)

    def on(self, executable: XlaExecutable, device: int) -> XlaExecutable:  # noqa: D102
        return executable.on(self.devices[device])

    def dump(self, executable: XlaExecutable) -> bytes | None:
        """``None`` too for what XLA cannot store: on CPU, a sort with a comparator of its own.

        Nor can what calls back into this process, as kernels with ``jax.debug.print`` do.
        """
        try:
            return executable.dump() if executable.storable else None
        except jax.errors.JaxRuntimeError as error:
            if "UNIMPLEMENTED" not in str(error):
                raise
            return None

    def load(self, data: bytes) -> XlaExecutable:  # noqa: D102
        return XlaExecutable.load(data, self._stacks, self.platform.held_bytes)

    def put(self, data: np.ndarray, device: int) -> jax.Array:  # noqa: D102
        return dispatch.placed(data, self.devices[device])

    def get(self, array: Part) -> np.ndarray:  # noqa: D102
        return np.asarray(array)

    def ask(self, arrays: list[Part]) -> None:
        """JAX keeps the copy with the array; of a row the whole stack is read."""
        for part in arrays:
            (part[0].array if type(part) is Row else part).copy_to_host_async()

    def refuses(self, error: Exception) -> bool:  # noqa: D102
        if isinstance(error, jax.errors.JaxRuntimeError):
            text = str(error)
            if text.partition(":")[0] in _PASSING or _OPTION in text:
                return False
        return super().refuses(error)

    def ran_out(self, error: BaseException) -> bool:  # noqa: D102
        return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)

    def alone(self, array: Part) -> jax.Array:
        """One of JAX's, which is no row of another."""
        return self._stacks.array(array) if type(array) is Row else array

    def owns(self, array: object) -> bool:  # noqa: D102
        return isinstance(array, (jax.Array, Row))

    def exported(self, array: Part) -> jax.Array:  # noqa: D102
        return self.alone(array)

    def adopted(self, array: jax.Array, device: int) -> jax.Array:
        """The same where it lies as executables take it: on that device, in its own order."""
        wanted = jax.sharding.SingleDeviceSharding(self.devices[device])
        if array.sharding == wanted and not array.aval.weak_type:
            return array
        with jax.enable_x64(True):  # else 64 bits become 32
            moved = jax.device_put(array, wanted)
            return (
                jax.lax.convert_element_type(moved, moved.dtype) if array.aval.weak_type else moved
            )

    def wait(self, arrays: list[Part]) -> None:  # noqa: D102
        for part in arrays:  # 0.4 us each; jax.block_until_ready, of a tree, 6 us
            array = part[0].array if type(part) is Row else part
            try:
                array.block_until_ready()
            except jax.errors.JaxRuntimeError:
                if not array.is_deleted():
                    raise

    def done(self, arrays: list[Part]) -> bool:  # noqa: D102
        # Any: jax.Array's declared type lacks is_ready.
        plain: list[Any] = [part[0].array if type(part) is Row else part for part in arrays]
        return all(map(_is_ready, plain))


def _is_ready(array: Any) -> bool:
    # Asked afterwards: an executable that another thread starts may take it over at any time.
    try:
        return bool(array.is_ready())
    except jax.errors.JaxRuntimeError:
        if not array.is_deleted():
            raise
        return True


@functools.lru_cache(maxsize=1)
def create() -> XlaBackend:
    """The backend's one instance."""
    return XlaBackend()
