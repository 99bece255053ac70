"""A step with its collectives as one SPMD program: what all ranks run together, where they agree.

Parts are chunks and collectives in an order in which each follows what it reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuse.backends.base import Chunk
from fuse.backends.xla.ranks.programs import Form
from fuse.trace.node import Node


@dataclass(frozen=True, slots=True)
class Part:
    """A chunk, or a collective; ``reads`` and ``makes`` are values of the whole step.

    ``shapes`` are those of the results of a collective, whose program has them flat.
    """

    what: Chunk | Form
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Spec:
    """An array that the step takes: shape, and NumPy's name of the dtype."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Joined:
    """A step as one program.

    Attributes:
        parts: chunks and collectives, in order.
        inputs: values from before the step and what they are, in the order of first use.
        outputs: values that are still there after it, ascending.
        shapes: where a value is the next step's input, the shape that it has there, which may be
            another than it was made with.
        donated: inputs that the step has consumed, whose memory the program may take.
        ranks: how many the default process group has; 0 where there is none.
    """

    parts: tuple[Part, ...]
    inputs: tuple[tuple[int, Spec], ...]
    outputs: tuple[int, ...]
    shapes: tuple[tuple[int, tuple[int, ...]], ...] = ()
    donated: tuple[int, ...] = ()
    ranks: int = 0

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The operations of all chunks."""
        return tuple(node for part in self.chunks() for node in part.nodes)

    def chunks(self) -> list[Chunk]:
        """The chunks, in order."""
        return [part.what for part in self.parts if isinstance(part.what, Chunk)]

    def forms(self) -> list[Form]:
        """The collectives, in order."""
        return [part.what for part in self.parts if isinstance(part.what, Form)]
