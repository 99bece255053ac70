"""A device that is not here: its compiler in worker processes, at most two at a time."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import time
from dataclasses import replace
from typing import Final, final

import jax

from fuse.backends.base import COMPILER_SECONDS, Chunk, Target
from fuse.backends.decomposed import MOST_SIGNATURES, Decompositions
from fuse.backends.estimates import AS_IT_IS, Estimate, Variant
from fuse.backends.functions import Shipment, is_function
from fuse.backends.precision import described, of_convolutions, of_products
from fuse.backends.processes.process import Ended, Process, Processes
from fuse.backends.processes.serve import packed
from fuse.backends.xla.lowering import rejection
from fuse.backends.xla.rules.registry import RULES
from fuse.backends.xla.targets.described import Described
from fuse.backends.xla.targets.names import unknown
from fuse.bounded import Bounded
from fuse.errors import ConfigError, describe
from fuse.trace.borders import Borders
from fuse.trace.node import Node
from fuse.trace.signature import signature

WORKERS: Final = min(2, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else 2
"""Compilers at once, no more than cores this process may use: each takes 0.7 GB with the compiler
in it, and several threads of its own."""


def started(described: Described) -> Process:
    """A worker for the target; raises ``ConfigError`` with what it says."""
    kept = {name: text for name, text in os.environ.items() if name != "FUSE_TARGET"}
    kept |= {"JAX_PLATFORMS": "cpu"} | described.environment()
    try:
        return Process(described.worker, [described.text], kept)
    except Ended as error:
        why = str(error).strip()
        if error.kind == "start":
            why = (why.splitlines() or [""])[0]
            if described.is_unknown(why):
                raise ConfigError(unknown(described.text, why)) from error
        raise ConfigError(
            describe(f"the compiler of target {described.text!r} did not start: {why}")
        ) from error


@final
class XlaTarget(Target):
    """Workers start when a chunk needs one, and live until ``close``."""

    def __init__(self, described: Described, seconds: float = COMPILER_SECONDS) -> None:
        """Raises ``ConfigError`` where the compiler is not installed; starts nothing."""
        self._compiler = described.compiler()
        self._described = described
        self.name = described.text
        self.machine = described.machine
        self.kind = described.kind
        self._seconds = seconds
        self._platform = described.platform()
        self._decompositions = Decompositions(lambda name: name in RULES or is_function(name))
        self._rejections: Bounded[str, str | None] = Bounded(MOST_SIGNATURES)
        self.workers = Processes(WORKERS, lambda: started(described))
        self._fingerprint: dict[str, str] | None = None

    def describe(self) -> dict[str, str]:  # noqa: D102
        return {
            "backend": "xla",
            "target": self._described.topology(),
            "compiler": self._compiler,
            "jax": jax.__version__,
            "jaxlib": importlib.metadata.version("jaxlib"),
            "xla flags": os.environ.get("XLA_FLAGS", ""),
            "float32 products": described(self._platform.name),
            **self._platform.fingerprint(),
        }

    def fingerprint(self) -> dict[str, str]:  # noqa: D102
        if self._fingerprint is None:
            with self.workers.one() as worker:
                self._fingerprint = worker.ready
        return self._fingerprint | {"float32 products": described(self._platform.name)}

    def borders(self) -> Borders:  # noqa: D102
        return self._platform.borders()

    def reject(self, node: Node) -> str | None:  # noqa: D102
        return self._rejections.memo(
            signature(node), lambda: rejection(node, self._platform, self._decompositions)
        )

    def compile(  # noqa: D102
        self, chunk: Chunk, variant: Variant = AS_IT_IS
    ) -> tuple[Estimate, bytes]:
        variant = replace(
            variant,
            precision=variant.precision or of_products(),
            convolutions=of_convolutions(self._platform.name),
        )
        began = time.perf_counter()
        try:
            functions = Shipment.of(chunk.nodes, self._described.lowered_for)
        except Exception as error:  # noqa: BLE001  (a kernel that the target cannot run)
            seconds = time.perf_counter() - began
            text = f"{type(error).__name__}: {error}"
            return Estimate(error=text, kind="refused", seconds=seconds), b""
        try:
            request = packed((chunk, variant, functions))
            answer: tuple[Estimate, bytes]
            if variant.scheduled:  # after its answer it goes on compiling
                with contextlib.closing(started(self._described)) as worker:
                    answer = worker.ask(request, self._seconds)
                return answer
            with self.workers.one() as worker:
                answer = worker.ask(request, self._seconds)
            return answer
        except (Ended, ConfigError) as error:
            seconds = time.perf_counter() - began
            kind = error.kind if isinstance(error, Ended) else "aborted"
            return Estimate(error=str(error), kind=kind, seconds=seconds), b""

    def close(self) -> None:  # noqa: D102
        self.workers.close()
