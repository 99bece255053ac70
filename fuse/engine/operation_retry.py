"""Per-operation retry of a trace that failed: what does not depend on the failure is computed all
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuse.backends.base import Backend, Chunk
from fuse.engine.alone import Alone, alone
from fuse.engine.executables import Found, chunk_text
from fuse.engine.pool import finish
from fuse.engine.runnable import Bound
from fuse.errors import ExecutionError, HostFallbackError
from fuse.plan.check import undefined_values
from fuse.plan.planner import prepared
from fuse.trace.borders import Borders
from fuse.trace.node import Node, Trace

LONGEST = 512
"""Operations up to which it is done: each may have to be compiled, some 20 ms."""


@dataclass(frozen=True, slots=True)
class Ways:
    """How an operation can be run.

    Attributes:
        find: finds the executables of chunks.
        uncompiled: runs a chunk on the host, on words and arrays, for a device.
        refusal: why the compiler does not take an operation, where it has been asked; or ``None``.
        fall_back: notes that one runs on the host, and why; raises ``HostFallbackError`` where it
            must not.
        device: the index of the one where the results are to be.
    """

    backend: Backend
    find: Callable[[Sequence[Chunk]], list[Bound]]
    uncompiled: Callable[[Backend, Chunk, bytes, Sequence[Any], int], list[Any]]
    refusal: Callable[[Node], str | None]
    fall_back: Callable[[Node, str], None]
    device: int


@dataclass(slots=True)
class Retried:
    """What was computed of a trace that failed.

    Attributes:
        arrays: of the values that are live, ``None`` for those that are lost.
        why: the text of the first operation that failed; empty where none did.
        fell_back: operations that ran on the host.
        error: the first refusal to run one there.
    """

    arrays: list[Any]
    why: str = ""
    fell_back: int = 0
    error: HostFallbackError | None = None


def retry(
    ways: Ways, trace: Trace, live: tuple[int, ...], leaves: Sequence[Any], scalars: bytes
) -> Retried:
    """Compute what can be of the values ``live``, one operation after the other.

    ``leaves`` are in the trace's order, ``None`` where there is no value (any more). Nothing is
    consumed. What the compiler refuses runs on the host.
    """
    made = Retried([None] * len(live))
    nodes = prepared(trace, live, Borders(whole=0))
    if len(nodes) > LONGEST:
        made.why = "it has too many operations to be run one by one"
        return made
    if len(trace.nodes) == 1 and ways.refusal(trace.nodes[0]) is None:
        return made  # it was alone when it failed
    pairs = zip(trace.leaves, leaves, strict=True)
    values = {leaf.value: array for leaf, array in pairs if array is not None}
    layouts, undefined = trace.layouts(), undefined_values(trace.nodes)
    for node in nodes:
        single = alone(node, layouts, undefined)
        if any(value not in values for value in single.inputs):
            continue
        try:
            values |= _run(ways, node, single, values, scalars, made)
        except Exception as error:  # noqa: BLE001  (its text is what the poison says)
            made.why = made.why or chunk_text("an operation failed", single.chunk, error)
            if isinstance(error, HostFallbackError):
                made.error = made.error or error
    made.arrays = [values.get(value) for value in live]
    return made


def _run(
    ways: Ways, node: Node, single: Alone, values: dict[int, Any], scalars: bytes, made: Retried
) -> dict[int, Any]:
    slots = list(single.slots)
    words = np.frombuffer(scalars, np.uint64)[slots].tobytes() if slots else b""
    arrays = [values[value] for value in single.inputs]
    bound = None if ways.refusal(node) is not None else _found(ways, node, single)
    if bound is None:
        reason = ways.refusal(node)
        if reason is not None:
            ways.fall_back(node, reason)
            made.fell_back += 1
        results = ways.uncompiled(ways.backend, single.chunk, words, arrays, ways.device)
    else:
        executable = bound.executable
        if ways.device:
            executable = ways.backend.on(executable, ways.device)
        results = ways.backend.execute(executable, words, arrays)
    ways.backend.wait(list(results))
    return dict(zip(single.outputs, results, strict=True))


def _found(ways: Ways, node: Node, single: Alone) -> Found | None:
    """The operation's executable; ``None`` where it is to run on the host.

    Raises ``ExecutionError`` where there is none for now.
    """
    try:
        (bound,) = ways.find([single.chunk])
    except ExecutionError:
        if ways.refusal(node) is None:
            raise
        return None
    if bound.pending is None:
        return bound.found
    finish(bound.pending)
    try:
        return bound.pending.result()
    except ExecutionError:
        return None  # it was not to be waited for: it can run on the host
