"""Executables by key: found in a tier of the cache, or compiled, and said from where."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fuse import __version__, config
from fuse.backends import registry
from fuse.backends.base import Backend, Chunk, Target
from fuse.cache.explain import Explanation
from fuse.cache.key import Key
from fuse.cache.memory import Live
from fuse.cache.opening import open_cache
from fuse.cache.permissions import read_secret
from fuse.cache.settings import CacheSettings
from fuse.engine.beside import Beside
from fuse.engine.timeline import Timeline
from fuse.errors import ConfigError, ExecutionError, VerifyError, describe
from fuse.plan.plan import PlannedChunk
from fuse.trace.functional import qualified_name
from fuse.trace.node import Node, Trace
from fuse.trace.signature import program_text

LISTED = 20
"""Operations that an error names before it says how many more there are."""
MOST_USED = 1024
"""Keys remembered as used: those first used, of which the next start loads some ahead."""
LOAD_THREADS = 2
"""Executables loaded at once for one plan."""
Names = tuple[tuple[str, str], ...]
"""Digest and label of each chunk's executable, as a stored plan has them."""
_GAUGES = frozenset({"entries", "bytes"})


@dataclass(frozen=True, slots=True)
class Found:
    """One chunk's executable and where it came from.

    Attributes:
        executable: what the backend runs.
        digest: its key's digest.
        label: its key's label: how many operations, and the first user's line among them.
        origin: ``memory``, ``disk``, ``shared`` or ``compiled``; ``pending`` while it is made.
        miss: why it had to be compiled; empty where nobody asked.
        seconds: what compiling or loading it took; 0 where it was in memory.
    """

    executable: Any
    digest: str
    label: str
    origin: str
    miss: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        source = "compiled" if self.origin == "compiled" else f"from {self.origin}"
        return f"executable {self.digest[:12]}, {self.label}: {source}"


class Executables:
    """Finds and compiles. Safe to share by threads: different chunks compile in parallel."""

    def __init__(self) -> None:
        """Open the cache as the environment asks for it; no file is touched yet."""
        self.cache = open_cache(cache_settings())
        self.timeline: Timeline | None = None
        """Takes what is made here; then a miss is explained too, which reads the stored keys."""
        self._lock = threading.Lock()
        self._compiles, self._seconds = 0, 0.0
        self._before: dict[str, Any] = {}
        self._used: dict[str, None] = {}

    def find(self, backend: Backend, chunk: Chunk, key: Key, beside: Beside | None = None) -> Found:
        """The executable of ``chunk``, from the cache or compiled, once between processes.

        ``beside`` compiles it where it can, and else it is compiled in this thread.

        Raises:
            ExecutionError: the backend cannot compile the chunk.
            CacheMissError: there is none, and the cache is in mode ``only``.
        """
        misses: list[str] = []
        stored: list[bytes] = []
        held = self.cache.origin(key) is not None
        with self._lock:
            self._note_used([key.digest])
        started = time.perf_counter()
        executable = self.cache.get_or_make(
            key,
            load=backend.load,
            make=lambda: self._compile(backend, chunk, key, misses, beside, stored),
            dump=lambda made: stored.pop() if stored else backend.dump(made),
        )
        stopped = time.perf_counter()
        origin = "memory" if held else self.cache.origin(key) or "made"
        origin = "compiled" if origin == "made" else origin
        if self.timeline is not None and not held:
            kind = "compiling" if origin == "compiled" else "loading"
            self.timeline.add(kind, started, stopped, key.label)
        seconds = 0.0 if held else stopped - started
        return Found(executable, key.digest, key.label, origin, "".join(misses), seconds)

    def named(
        self, backend: Backend, names: Names, chunks: tuple[PlannedChunk, ...]
    ) -> list[Found] | None:
        """The executables that a stored plan names; ``None`` where one is not at hand.

        Raises ``VerifyError`` where one is that of another kind of chunk.
        """
        wanted = dict(names)

        def find(digest: str) -> Live | None:
            return self.cache.named(digest, backend.load)

        if len(wanted) == 1:
            lives = list(map(find, wanted))
        else:
            with ThreadPoolExecutor(LOAD_THREADS, "fuse-load") as pool:
                lives = list(pool.map(find, wanted))
        held = {}
        for (digest, label), live in zip(wanted.items(), lives, strict=True):
            if live is None:
                return None
            held[digest] = live.key, Found(live.value, digest, label, live.origin)
        for (digest, _), planned in zip(names, chunks, strict=True):
            fits(held[digest][0], planned)
        with self._lock:
            self._note_used(wanted)
        return [held[digest][1] for digest, _ in names]

    def _compile(
        self,
        backend: Backend,
        chunk: Chunk,
        key: Key,
        misses: list[str],
        beside: Beside | None,
        stored: list[bytes],
    ) -> Any:
        printing = "recompiles" in config.explain()
        if printing or self.timeline is not None:
            misses.append(explained(self.cache.explain(key), chunk.nodes))
        started = time.perf_counter()
        try:
            made = None if beside is None else beside.compiled(backend, chunk)
            executable = backend.compile(chunk) if made is None else made.executable
        except Exception as error:
            raise ExecutionError(chunk_text("compiling a chunk failed", chunk, error)) from error
        if made is not None:
            stored.append(made.stored)
        seconds = time.perf_counter() - started
        with self._lock:
            self._compiles += 1
            self._seconds += seconds
        if printing:
            # One write, so that lines of chunks that compile in parallel do not mix.
            sys.stderr.write(f"fuse: compiled {key.label} in {seconds:.2f} s: {misses[-1]}\n")
        return executable

    def _note_used(self, digests: Iterable[str]) -> None:
        if len(self._used) < MOST_USED:
            self._used |= dict.fromkeys(digests)

    def used(self) -> list[str]:
        """The digests of the keys first asked for, in that order; of some ``MOST_USED`` of them."""
        with self._lock:
            return list(self._used)

    def stats(self) -> dict[str, Any]:
        """``compiles``, ``compile_seconds``, ``cache`` and ``cache_events`` since the reset."""
        with self._lock:
            found: dict[str, Any] = {"compiles": self._compiles, "compile_seconds": self._seconds}
        counted = since(self.cache.stats(), self._before)
        return found | {"cache": counted["tiers"], "cache_events": counted["events"]}

    def reset_stats(self) -> None:
        """Set the counters to zero; what is cached stays."""
        with self._lock:
            self._compiles, self._seconds = 0, 0.0
        self._before = self.cache.stats()


def key_of(backend: Backend | Target, chunk: Chunk) -> Key:
    """The key of a chunk's executable: whatever decides about its code, field by field."""
    fields = {**program_fields(chunk), **surroundings(backend)}
    count = f"{len(chunk.nodes)} operation{'' if len(chunk.nodes) == 1 else 's'}"
    return Key.of(fields, label=count + first_line(chunk))


def fits(key: Key, planned: PlannedChunk) -> None:
    """Check what a key says of arrays and numbers against a chunk of a stored plan.

    Raises ``VerifyError``: the executable under that key would not take what the plan gives it.
    """
    fields = key.as_dict()
    # Inputs are numbered within their chunk there: "%0:float32[2,3], %4:int64[]".
    layouts = [text.partition(":")[2] for text in fields.get("inputs", "").split(", ") if text]
    stored = (
        layouts,
        len(re.findall(r"\d+", fields.get("outputs", ""))),
        fields.get("donated"),
        fields.get("scalars"),
    )
    given = (
        [str(leaf.layout) for leaf in planned.inputs],
        len(planned.outputs),
        repr(planned.donated),
        str(len(planned.scalars)),
    )
    if stored != given:
        raise VerifyError(
            f"a stored plan's chunk has (inputs, outputs, donated, scalars) {given}, "
            f"the executable that it names {stored}"
        )


def first_line(chunk: Chunk | Trace) -> str:
    """`` from train.py:7``, the first user's line among the operations, or nothing."""
    source = next((line for line in map(_line_of, chunk.nodes) if line), "")
    return f" from {source}" if source else ""


def program_fields(chunk: Chunk) -> dict[str, str]:
    """The fields of a key that are the chunk itself."""
    return {
        "program": program_text(chunk.nodes),
        "inputs": ", ".join(map(str, chunk.inputs)),
        "outputs": repr(chunk.outputs),
        "donated": repr(chunk.donated),
        "apart": repr(chunk.apart),
        "scalars": str(chunk.scalars),
    }


def surroundings(backend: Backend | Target) -> dict[str, str]:
    """The fields of a key beside the program: versions, sources, and the backend's own."""
    return {**compile_fields(backend), **backend.fingerprint()}


def compile_fields(backend: Backend | Target) -> dict[str, str]:
    """The versions and sources by which the backend compiles, a target's for the target."""
    if isinstance(backend, Target):
        backend = registry.get_backend(backend.describe()["backend"])
    return {
        # Decompositions, and so what a chunk becomes, are PyTorch's: 2.13.0 of any build.
        "torch": torch.__version__.partition("+")[0],
        "format": f"{__version__} {registry.source_digest(backend)}",
    }


def explained(explanation: Explanation, nodes: tuple[Node, ...]) -> str:
    """The text of a miss, with the user's line of the first operation that differs."""
    for difference in explanation.differences:
        if difference.field == "program" and difference.line <= len(nodes):
            node = nodes[difference.line - 1]
            place = node.source or "an unknown line"
            return f"{explanation.text}\n  which is {qualified_name(node.op)} at {place}"
    return explanation.text


def chunk_text(what: str, chunk: Chunk | Trace, error: Exception) -> str:
    """An error's text: what failed, on which operations, recorded at which lines."""
    lines = [f"    {node.op}  {node.source}" for node in chunk.nodes[:LISTED]]
    if len(chunk.nodes) > LISTED:
        lines.append(f"    ... and {len(chunk.nodes) - LISTED} more")
    return "\n".join([f"{what}: {type(error).__name__}: {error}", "  operations:", *lines])


def cache_settings() -> CacheSettings:
    """The cache's settings as the environment gives them."""
    return CacheSettings(
        mode=config.cache_mode(),
        directory=config.cache_dir(),
        disk_bytes=config.disk_bytes(),
        memory_entries=config.memory_entries(),
        memory_bytes=config.memory_bytes(),
        shared=config.shared_cache(),
        key=secret(),
        record=config.cache_record(),
        lease_seconds=config.lease_seconds(),
    )


def secret() -> bytes | None:
    """The key of signatures: ``FUSE_CACHE_KEY``, or what the file that it names holds, or None.

    Raises:
        CacheTrustError: others may read or write the key file.
        ConfigError: the key file cannot be read.
    """
    given = config.cache_key()
    if not isinstance(given, Path):
        return given
    try:
        return read_secret(given)
    except OSError as error:
        raise ConfigError(describe(f"FUSE_CACHE_KEY's file cannot be read: {error}")) from error


def since(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Nested counts less those of an earlier moment; what counts up nothing stays as it is."""
    found: dict[str, Any] = {}
    for name, value in now.items():
        if isinstance(value, dict):
            found[name] = since(value, before.get(name, {}))
        elif isinstance(value, int) and name not in _GAUGES:
            found[name] = value - before.get(name, 0)
        else:
            found[name] = value
    return found


def _line_of(node: Node) -> str:
    """The user's line of a node, empty for one that autograd called."""
    return node.source if not node.source.startswith("backward (") else ""
