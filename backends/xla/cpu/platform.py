"""XLA's CPU platform: PyTorch's kernels inside its programs, and options of its compiler."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax

from fuse.backends.base import Chunk
from fuse.backends.xla.calls import Call
from fuse.backends.xla.cpu import fused_regions, kernels, memory, operators, options, updates
from fuse.backends.xla.cpu.features import host_features
from fuse.backends.xla.platform import Platform
from fuse.trace.spec import TensorSpec, View


class CpuPlatform(Platform):
    """Final. Without ``start`` it has no kernels, and everything is written in XLA's terms."""

    def __init__(self) -> None:
        super().__init__("cpu")

    def start(self) -> None:  # noqa: D102
        memory.keep_freed_memory()
        kernels.register()

    def fingerprint(self) -> dict[str, str]:  # noqa: D102
        return {
            "host": host_features(),
            "compiler options": options.version(),
            "host kernels": kernels.version(),
        }

    def held_bytes(self, stored: int | None) -> int:  # noqa: D102
        return memory.held_bytes(stored)

    def give_back(self) -> None:  # noqa: D102
        memory.give_back()

    def has_kernel(self, target: str, *values: jax.Array) -> bool:  # noqa: D102
        return kernels.available(target, *values)

    def call(self, target: str, results: Any, *values: jax.Array, **attributes: Any) -> Any:  # noqa: D102
        return kernels.call(target, results, *values, **attributes)

    def operator(  # noqa: D102
        self,
        target: str,
        specs: Sequence[TensorSpec],
        positional: Sequence[Any],
        keyword: Mapping[str, Any],
    ) -> list[jax.Array] | None:
        return operators.results(target, specs, positional, keyword)

    def calls(self, chunk: Chunk, apart: Collection[int]) -> list[Call]:  # noqa: D102
        return list(fused_regions.find_regions(chunk, apart)) if kernels.known() else []

    def updates(self, chunk: Chunk) -> frozenset[int]:  # noqa: D102
        return updates.updated(chunk) if kernels.known() else frozenset()

    def update(  # noqa: D102
        self, base: jax.Array, view: View, value: jax.Array, offset: jax.Array | None = None
    ) -> jax.Array | None:
        return updates.written(base, view, value, offset) if kernels.known() else None

    def options(self, lowered: jax.stages.Lowered) -> dict[str, str | bool] | None:  # noqa: D102
        return options.cpu_options(lowered)
