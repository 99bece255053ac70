"""XLA through JAX: the backend that runs on this machine's CPU, a GPU or a TPU."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import jax
import jaxlib
import ml_dtypes  # noqa: F401  (registers bfloat16 and the float8 types with NumPy)
import numpy as np
import torch

import fuse.backends.xla.rules  # noqa: F401  (fills the table of rules)
from fuse.backends.base import Backend, Chunk
from fuse.backends.decomposed import Decompositions
from fuse.backends.functions import is_function, program_of
from fuse.backends.xla import dispatch
from fuse.backends.xla.calls import Call
from fuse.backends.xla.cpu.platform import CpuPlatform
from fuse.backends.xla.emit import Scalars, Setting, emit_node
from fuse.backends.xla.executable import XlaExecutable
from fuse.backends.xla.passing import passed
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.products import Batch, Sum, batches, sums
from fuse.backends.xla.program import emit_chunk
from fuse.backends.xla.rules.registry import RULES, STATIC_SCALARS, Unsupported
from fuse.backends.xla.stacking import Group, stacking
from fuse.backends.xla.stacks import Row, Stacks
from fuse.backends.xla.steps import ordered
from fuse.trace.bind import named
from fuse.trace.functional import find_overload
from fuse.trace.node import HostArg, Node, NumberArg
from fuse.trace.signature import signature
from fuse.trace.spec import HALF_COMPLEX


def platform_of(name: str) -> Platform:
    """The platform that JAX calls ``name``."""
    if name == "cpu":
        return CpuPlatform()
    return Platform("gpu" if name in ("cuda", "rocm") else name)


class XlaBackend(Backend):
    """Final. One instance a process; its platform is the best one JAX finds."""

    name = "xla"

    def __init__(self) -> None:
        self.devices = jax.devices()
        self.platform = platform_of(self.devices[0].platform)
        self.decompositions = Decompositions(self.has_rule)
        self._rejections: dict[str, str | None] = {}
        self._stacks = Stacks(on_host=self.shares_host_memory())

    @functools.cached_property
    def _fingerprint(self) -> dict[str, str]:
        device = self.devices[0]
        return {
            "backend": self.name,
            "platform": device.platform,
            "device kind": device.device_kind,
            "device count": str(len(self.devices)),
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "compiler": str(getattr(device.client, "platform_version", "")),
            "xla flags": os.environ.get("XLA_FLAGS", ""),
            **self.platform.fingerprint(),
        }

    def fingerprint(self) -> dict[str, str]:  # noqa: D102
        return self._fingerprint

    def device_count(self) -> int:  # noqa: D102
        return len(self.devices)

    def device_name(self) -> str:  # noqa: D102
        return str(self.devices[0].device_kind)

    def shares_host_memory(self) -> bool:  # noqa: D102
        return self.platform.name == "cpu"

    def wakes_host_threads(self) -> bool:  # noqa: D102
        return self.shares_host_memory()

    def start(self) -> None:  # noqa: D102
        self.platform.start()
        self.__dict__.pop("_fingerprint", None)  # which names the kernels

    def has_rule(self, overload: str) -> bool:  # noqa: D102
        return overload in RULES or is_function(overload)

    def reject(self, node: Node) -> str | None:
        """Trace the node's rule abstractly, once for each distinct signature."""
        key = signature(node)
        if key not in self._rejections:
            self._rejections[key] = self._try(node)
        return self._rejections[key]

    def _try(self, node: Node) -> str | None:
        missing = sorted(node.dtypes() & HALF_COMPLEX)
        if missing:
            return f"XLA has no {', '.join(missing)}"
        if not self.has_rule(node.target):
            reason = self.decompositions.reason(node)
            if reason is not None:
                return reason
        inputs = {op.value: op.layout for op in node.operands if op.initialised}
        setting = Setting(self.platform, self.decompositions.get)

        def run(words: jax.Array, arrays: dict[int, jax.Array]) -> list[jax.Array]:
            values = {value: (array, inputs[value]) for value, array in arrays.items()}
            emit_node(node, values, {}, Scalars(words), setting)
            return [values[value][0] for value in node.results()]

        words = max([slot + 1 for _, slot in node.dynamic] + [(node.random or 0) + 2])
        with jax.enable_x64(True):
            specs = {v: jax.ShapeDtypeStruct(lay.shape, lay.dtype) for v, lay in inputs.items()}
            try:
                jax.eval_shape(run, jax.ShapeDtypeStruct((words, 2), "uint32"), specs)
            except Unsupported as error:
                return str(error)
            except Exception as error:  # noqa: BLE001  (a rule that fails is one we do not have)
                return f"the rule of {node.target} failed: {type(error).__name__}: {error}"
        return None

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

    def compile(self, chunk: Chunk) -> Any:  # noqa: D102
        added = sums(chunk)
        apart = {place for one in added for place in one.nodes}
        batched = [one for one in batches(chunk) if apart.isdisjoint(one.nodes)]
        stacks = stacking(chunk, self._by_element, apart)
        program, passing, donated = passed(chunk, stacks)
        merged: list[Group | Sum | Batch | Call] = [*stacks.groups, *added, *batched]
        merged += self.platform.calls(program, {place for one in merged for place in one.nodes})
        order = ordered(program, merged)
        setting = Setting(self.platform, self.decompositions.get, self.platform.updates(program))
        function = emit_chunk(program, order, stacks, setting)
        with jax.enable_x64(True):
            words = jax.ShapeDtypeStruct((chunk.scalars, 2), "uint32")
            specs = [jax.ShapeDtypeStruct(i.layout.shape, i.layout.dtype) for i in program.inputs]
            layouts = {leaf.value: leaf.layout for leaf in chunk.inputs}
            for values in stacks.inputs:
                row = layouts[values[0]]
                specs.append(jax.ShapeDtypeStruct((len(values), *row.shape), row.dtype))
            jitted = jax.jit(function, donate_argnums=donated, keep_unused=True)
            lowered = jitted.lower(words, *specs)
            compiled = lowered.compile(self.platform.options(lowered))
        called = filter(None, (program_of(node.target) for node in chunk.nodes))
        storable = all(function.storable for function in called)
        loaded = compiled.runtime_executable()
        return XlaExecutable(loaded, passing, self._stacks, compiled, storable)

    def _by_element(self, node: Node) -> bool:
        """Whether a rule computes ``node`` element by element."""
        overload = find_overload(node.target)
        pointwise = overload is not None and torch.Tag.pointwise in overload.tags
        return pointwise and self.has_rule(node.target)

    def execute(self, executable: Any, scalars: bytes, arrays: Sequence[Any]) -> list[Any]:  # noqa: D102
        results: list[Any] = executable(scalars, arrays)
        return results

    def dump(self, executable: Any) -> bytes | None:
        """``None`` too for what XLA cannot store: on CPU, a sort with a comparator of its own.

        Nor can what calls back into this process, as kernels with ``jax.debug.print`` do.
        """
        found: XlaExecutable = executable
        try:
            return found.dump() if found.storable else None
        except jax.errors.JaxRuntimeError as error:
            if "UNIMPLEMENTED" not in str(error):
                raise
            return None

    def load(self, data: bytes) -> Any:  # noqa: D102
        return XlaExecutable.load(data, self._stacks)

    def put(self, data: np.ndarray, device: int) -> Any:  # noqa: D102
        return dispatch.placed(data, self.devices[device])

    def get(self, array: Any) -> np.ndarray:  # noqa: D102
        return np.asarray(array)

    def alone(self, array: Any) -> jax.Array:
        """One of this backend's arrays as one of JAX's, which is no row of another."""
        return self._stacks.array(array) if type(array) is Row else array

    def owns(self, array: Any) -> bool:  # noqa: D102
        return isinstance(array, (jax.Array, Row))

    def wait(self, arrays: list[Any]) -> None:  # noqa: D102
        for part in arrays:  # 0.4 us each; jax.block_until_ready, of a tree, 6 us
            array = part[0].array if type(part) is Row else part
            if not array.is_deleted():
                array.block_until_ready()

    def done(self, arrays: list[Any]) -> bool:  # noqa: D102
        # Any: jax.Array's declared type lacks is_ready.
        plain: list[Any] = [part[0].array if type(part) is Row else part for part in arrays]
        return all(array.is_deleted() or array.is_ready() for array in plain)


@functools.lru_cache(maxsize=1)
def create() -> XlaBackend:
    """The backend's one instance."""
    return XlaBackend()
