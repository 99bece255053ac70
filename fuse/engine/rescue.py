"""A trace that failed, run again operation by operation: what does not depend on the failure is
computed all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuse.backends.base import Backend, Chunk
from fuse.engine.executables import Found, chunk_text
from fuse.engine.runnable import Bound, local_chunk
from fuse.errors import ExecutionError
from fuse.plan.check import undefined_values
from fuse.plan.plan import PlannedChunk
from fuse.plan.planner import prepared
from fuse.plan.scalars import compact_scalars
from fuse.trace.borders import Borders
from fuse.trace.node import Leaf, Node, Trace

Uncompiled = Callable[[Backend, Chunk, bytes, Sequence[Any]], list[Any]]
LONGEST = 512
"""Operations up to which it is done: each may have to be compiled, some 20 ms."""


def rescue(
    backend: Backend,
    find: Callable[[Sequence[Chunk]], list[Bound]],
    trace: Trace,
    live: tuple[int, ...],
    leaves: Sequence[Any],
    scalars: bytes,
    uncompiled: Uncompiled,
) -> tuple[list[Any], str]:
    """The arrays of the values ``live``, ``None`` for those that are lost, and why they are.

    ``leaves`` are in the trace's order, ``None`` where there is no value (any more); ``find`` is
    what finds the executables of chunks; ``uncompiled`` runs one whose executable was not to be
    waited for and could not be made. Nothing is consumed. The text is that of the first
    operation that failed, and empty where none did.
    """
    nodes = prepared(trace, live, Borders(whole=0))
    if len(nodes) > LONGEST:
        return [None] * len(live), "it has too many operations to be run one by one"
    pairs = zip(trace.leaves, leaves, strict=True)
    values = {leaf.value: array for leaf, array in pairs if array is not None}
    layouts, undefined, text = trace.layouts(), undefined_values(trace.nodes), ""
    for node in nodes:
        read = dict.fromkeys(operand.value for operand in node.operands)
        inputs = tuple(Leaf(value, layouts[value]) for value in read if value not in undefined)
        if any(leaf.value not in values for leaf in inputs):
            continue
        try:
            values |= _run(backend, find, node, inputs, values, scalars, uncompiled)
        except Exception as error:  # noqa: BLE001  (its text is what the poison says)
            text = text or chunk_text("an operation failed", Trace((node,), inputs), error)
    return [values.get(value) for value in live], text


def _run(
    backend: Backend,
    find: Callable[[Sequence[Chunk]], list[Bound]],
    node: Node,
    inputs: tuple[Leaf, ...],
    values: dict[int, Any],
    scalars: bytes,
    uncompiled: Uncompiled,
) -> dict[int, Any]:
    compacted, slots = compact_scalars((node,))
    planned = PlannedChunk(compacted, inputs, tuple(sorted(node.results())), (), slots)
    chunk = local_chunk(planned, Counter())
    (bound,) = find([chunk])
    words = np.frombuffer(scalars, np.uint64)[list(slots)].tobytes() if slots else b""
    arrays = [values[leaf.value] for leaf in inputs]
    try:
        found: Found = bound.found if bound.pending is None else bound.pending.result()
    except ExecutionError:
        made = uncompiled(backend, chunk, words, arrays)
    else:
        made = backend.execute(found.executable, words, arrays)
    backend.wait(list(made))
    return dict(zip(planned.outputs, made, strict=True))
