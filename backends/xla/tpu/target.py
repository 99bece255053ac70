"""A TPU that is not here: its compiler in worker processes, at most two at a time."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import pickle
import queue
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import jax
import torch

from fuse.backends.base import COMPILER_SECONDS, Chunk, Target
from fuse.backends.decomposed import MOST_SIGNATURES, Decompositions
from fuse.backends.estimates import AS_IT_IS, Estimate, Variant
from fuse.backends.functions import Shipment, is_function
from fuse.backends.xla.lowering import rejection
from fuse.backends.xla.rules.registry import RULES
from fuse.backends.xla.tpu.patience import Patience, processor_seconds
from fuse.backends.xla.tpu.platform import TpuPlatform
from fuse.backends.xla.tpu.targets import TargetName, libtpu_version, unknown
from fuse.bounded import Bounded
from fuse.errors import ConfigError, describe
from fuse.trace.borders import Borders
from fuse.trace.node import Node
from fuse.trace.signature import signature

WORKERS: Final = min(2, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else 2
"""Compilers at once, no more than cores this process may use: each takes 0.7 GB with libtpu in it,
and several threads of its own."""
START_SECONDS: Final = 300.0
_LOOK: Final = 1.0  # seconds between two looks at what a compiler has used
_LENGTH: Final = 8  # bytes before a message: ``worker.LENGTH``
_LAST: Final = 6  # lines of an aborted compiler's output that its refusal quotes


class Ended(Exception):
    """A worker gave no answer: ``kind`` is ``aborted`` or ``time-out``."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Worker:
    """One process; ``fingerprint`` is what it said when it was ready."""

    def __init__(self, target: TargetName) -> None:
        """Start it and wait until it is ready; raises ``ConfigError`` with what it says."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fuse.backends.xla.tpu.worker", target.text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=_environment(target),
        )
        try:
            ready = self._receive(START_SECONDS)
        except Ended as error:
            self.close()
            raise ConfigError(
                describe(f"the compiler of target {target.text!r} did not start: {error}")
            ) from error
        if isinstance(ready, str):
            self.close()
            why = ready.strip().splitlines()[0]
            if "INVALID_ARGUMENT" in why:
                raise ConfigError(unknown(target.text, why))
            raise ConfigError(
                describe(f"the compiler of target {target.text!r} did not start: {why}")
            )
        self.fingerprint: dict[str, str] = ready

    def compile(
        self, chunk: Chunk, variant: Variant, functions: Shipment, seconds: float
    ) -> tuple[Estimate, bytes]:
        """Its answer; raises ``Ended`` where there is none, and the worker is of no use then."""
        data = pickle.dumps((chunk, variant, functions))
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(len(data).to_bytes(_LENGTH, "big") + data)
            self._process.stdin.flush()
        except OSError as error:
            raise Ended("aborted", self._last_words()) from error
        answer: tuple[Estimate, bytes] = self._receive(seconds)
        return answer

    def kill(self) -> None:
        """End the process, from any thread: whoever waits for it gets ``Ended``."""
        self._process.kill()

    def close(self) -> None:
        """End the process and close what leads to it: for the thread that uses the worker."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                with contextlib.suppress(OSError):  # a request that nobody read is still in it
                    pipe.close()

    def _receive(self, seconds: float) -> Any:
        patience = Patience(seconds, processor_seconds(self._process.pid), time.monotonic())
        size = int.from_bytes(self._read(_LENGTH, patience), "big")
        return pickle.loads(self._read(size, patience))  # noqa: S301  (of our own process)

    def _read(self, size: int, patience: Patience) -> bytes:
        assert self._process.stdout is not None
        descriptor, data = self._process.stdout.fileno(), bytearray()
        while len(data) < size:
            while not select.select([descriptor], [], [], _LOOK)[0]:
                if why := patience.spent(processor_seconds(self._process.pid), time.monotonic()):
                    raise Ended("time-out", why)
            part = os.read(descriptor, min(size - len(data), 1 << 20))
            if not part:
                raise Ended("aborted", self._last_words())
            data += part
        return bytes(data)

    def _last_words(self) -> str:
        """How the process ended, and the last lines that it printed."""
        code = self._process.wait()
        self._log.seek(0)
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line]
        fatal = [line for line in lines if line.startswith("F") or "Check fail" in line]
        said = "\n".join((fatal or lines)[-_LAST:])
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"the compiler ended its process ({how}): {said}"


def _environment(target: TargetName) -> dict[str, str]:
    """This process's, and what keeps libtpu from looking for a TPU's host."""
    added = {
        "JAX_PLATFORMS": "cpu",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # there is no TPU that two processes could want
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": target.generation.accelerator,
        "TPU_WORKER_HOSTNAMES": "localhost",
    }
    kept = {name: text for name, text in os.environ.items() if name != "FUSE_TARGET"}
    return kept | added


class TpuTarget(Target):
    """Final. Workers start when a chunk needs one, and live until ``close``."""

    def __init__(self, target: TargetName, seconds: float = COMPILER_SECONDS) -> None:
        """Raises ``ConfigError`` where libtpu is not installed; starts nothing."""
        self._libtpu = libtpu_version()
        self._target = target
        self.name = target.text
        self.machine = target.generation.machine
        self._seconds = seconds
        self._platform = TpuPlatform()
        self._decompositions = Decompositions(lambda name: name in RULES or is_function(name))
        self._rejections: Bounded[str, str | None] = Bounded(MOST_SIGNATURES)
        self._idle: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for _ in range(WORKERS):
            self._idle.put(None)
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        self._fingerprint: dict[str, str] | None = None

    def describe(self) -> dict[str, str]:  # noqa: D102
        return {
            "backend": "xla",
            "target": self._target.topology,
            "libtpu": self._libtpu,
            "jax": jax.__version__,
            "jaxlib": importlib.metadata.version("jaxlib"),
            "xla flags": os.environ.get("XLA_FLAGS", ""),
            "float32 products": torch.get_float32_matmul_precision(),
            **self._platform.fingerprint(),
        }

    def fingerprint(self) -> dict[str, str]:  # noqa: D102
        if self._fingerprint is None:
            with self._worker() as worker:
                self._fingerprint = worker.fingerprint
        return self._fingerprint | {"float32 products": torch.get_float32_matmul_precision()}

    def borders(self) -> Borders:  # noqa: D102
        return self._platform.borders()

    def reject(self, node: Node) -> str | None:  # noqa: D102
        return self._rejections.memo(
            signature(node), lambda: rejection(node, self._platform, self._decompositions)
        )

    def compile(  # noqa: D102
        self, chunk: Chunk, variant: Variant = AS_IT_IS
    ) -> tuple[Estimate, bytes]:
        precision = variant.precision or torch.get_float32_matmul_precision()
        variant = replace(variant, precision=precision)
        started = time.perf_counter()
        try:
            functions = Shipment.of(chunk.nodes, "tpu")
        except Exception as error:  # noqa: BLE001  (a kernel that no TPU can run)
            seconds = time.perf_counter() - started
            text = f"{type(error).__name__}: {error}"
            return Estimate(error=text, kind="refused", seconds=seconds), b""
        try:
            with self._worker() as worker:
                answer: tuple[Estimate, bytes]
                answer = worker.compile(chunk, variant, functions, self._seconds)
                return answer
        except (Ended, ConfigError) as error:
            seconds = time.perf_counter() - started
            kind = error.kind if isinstance(error, Ended) else "aborted"
            return Estimate(error=str(error), kind=kind, seconds=seconds), b""

    @contextlib.contextmanager
    def _worker(self) -> Iterator[Worker]:
        """A worker that nobody else uses; one that gives no answer is ended."""
        worker = self._idle.get()
        try:
            if worker is None:
                worker = self._start()
            yield worker
        except BaseException:
            if worker is not None:
                worker.close()
                with self._lock:
                    self._workers.discard(worker)
            worker = None
            raise
        finally:
            self._idle.put(worker)

    def _start(self) -> Worker:
        worker = Worker(self._target)
        with self._lock:
            self._workers.add(worker)
            self._fingerprint = self._fingerprint or worker.fingerprint
        return worker

    def close(self) -> None:  # noqa: D102
        with self._lock:
            for worker in self._workers:
                worker.kill()
            self._workers = set()
        idle: list[Worker | None] = []  # the others are closed by those who use them
        with contextlib.suppress(queue.Empty):
            while True:
                idle.append(self._idle.get_nowait())
        for one in idle:
            if one is not None:
                one.close()
            self._idle.put(None)
