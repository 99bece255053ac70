"""One operation as a chunk of its own, and which operations a compiler refuses as such.

What a compiler refuses of a chunk is mostly one operation, which it refuses alone as well. That one
runs on the host from then on, and all others are compiled without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from fuse.backends.base import Backend, Chunk
from fuse.engine.runnable import local_chunk
from fuse.errors import ExecutionError
from fuse.plan.plan import PlannedChunk
from fuse.plan.scalars import compact_scalars
from fuse.trace.node import Leaf, Node, layouts_of
from fuse.trace.signature import signature
from fuse.trace.spec import Layout

LONGEST_WORDS = 300
"""Characters of a compiler's error that a warning repeats; some print the whole program."""


@dataclass(frozen=True, slots=True)
class Alone:
    """A chunk of one operation.

    Attributes:
        chunk: with values numbered within it.
        inputs: the values of the trace that it reads, in order.
        outputs: those that it makes.
        slots: the words of the trace's packed array that it reads.
    """

    chunk: Chunk
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    slots: tuple[int, ...]


def alone(node: Node, layouts: Mapping[int, Layout], undefined: Collection[int]) -> Alone:
    """``node`` as a chunk; ``undefined`` are values that nothing was written to."""
    read = dict.fromkeys(operand.value for operand in node.operands)
    inputs = tuple(Leaf(value, layouts[value]) for value in read if value not in undefined)
    compacted, slots = compact_scalars((node,))
    planned = PlannedChunk(compacted, inputs, tuple(sorted(node.results())), (), slots)
    chunk = local_chunk(planned, Counter())
    return Alone(chunk, tuple(leaf.value for leaf in inputs), planned.outputs, slots)


def refused_alone(
    backend: Backend, chunk: Chunk, error: ExecutionError, compile_: Callable[[Chunk], object]
) -> list[tuple[Node, str]]:
    """The different operations of a chunk that the compiler refuses alone, with its words.

    ``error`` is what ``compile_`` raised for the whole: ``ExecutionError`` from the compiler's own.
    """
    cause = error.__cause__
    if not isinstance(cause, Exception) or not backend.refuses(cause):
        return []
    if len(chunk.nodes) == 1:
        return [(chunk.nodes[0], words(cause))]
    layouts, defined = layouts_of(chunk.inputs, chunk.nodes), {leaf.value for leaf in chunk.inputs}
    defined.update(value for node in chunk.nodes for value in node.results())
    refused: list[tuple[Node, str]] = []
    for node in {signature(node): node for node in chunk.nodes}.values():
        single = alone(node, layouts, layouts.keys() - defined)
        try:
            compile_(single.chunk)
        except ExecutionError as one:
            refused += refused_alone(backend, single.chunk, one, compile_)
    return refused


def words(error: Exception) -> str:
    """The compiler's reason, as a warning says it."""
    first = str(error).strip().partition("\n")[0]
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    shown = text if len(text) <= LONGEST_WORDS else f"{text[:LONGEST_WORDS]}..."
    return f"its compiler refuses it: {shown}"
