"""Which input's memory each output takes.

JAX pairs donated inputs with outputs of their shape and dtype by position alone. Where an output
so lands in memory that is still read, XLA copies the input first and the output after: an
optimizer's update, whose tensors all have equals, was copied twice at every step. Here a tensor's
new value takes the place of its old one; other inputs give theirs up only where nothing reads
them any more when the output is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuse.backends.base import Chunk
from fuse.trace.node import layouts_of
from fuse.trace.spec import Layout


@dataclass(frozen=True, slots=True)
class Aliasing:
    """Pairs of inputs and outputs, in a form that JAX cannot misread.

    Attributes:
        donated: positions of the inputs whose memory is reused, ascending.
        order: positions in the chunk's outputs, in the order in which the program returns
            them: of each shape and dtype, the one for the first donated input comes first.
    """

    donated: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def places(self) -> tuple[int, ...]:
        """Where the program returns each of the chunk's outputs: the inverse of ``order``."""
        return tuple(sorted(range(len(self.order)), key=self.order.__getitem__))


def aliasing(chunk: Chunk) -> Aliasing:
    """Pair the chunk's donated inputs with outputs of their layout."""
    layouts = layouts_of(chunk.inputs, chunk.nodes)
    pairs = _successors(chunk, layouts)
    _add_free(chunk, layouts, pairs)
    donated = tuple(sorted(pairs))
    first = [pairs[position] for position in donated]
    taken = set(first)
    rest = [position for position in range(len(chunk.outputs)) if position not in taken]
    return Aliasing(donated, (*first, *rest))


def firsts(chunk: Chunk) -> dict[int, int]:
    """For each later value of a buffer, the first that the chunk knows of it."""
    first: dict[int, int] = {}
    for node in chunk.nodes:
        for write in node.writes:
            old = node.operands[write.operand].value
            first[write.value] = first.get(old, old)
    return first


def origins(chunk: Chunk) -> dict[int, int]:
    """For each value of an input's buffer, old or new, the position of that input."""
    origin = {leaf.value: position for position, leaf in enumerate(chunk.inputs)}
    later = firsts(chunk).items()
    return origin | {value: origin[first] for value, first in later if first in origin}


def _successors(chunk: Chunk, layouts: dict[int, Layout]) -> dict[int, int]:
    """Donated inputs and the outputs that are their buffers' new values, as positions."""
    origin = origins(chunk)
    pairs: dict[int, int] = {}
    for position, value in enumerate(chunk.outputs):
        source = origin.get(value)
        if source in chunk.donated and layouts[value] == chunk.inputs[source].layout:
            pairs[source] = position
    return pairs


def _add_free(chunk: Chunk, layouts: dict[int, Layout], pairs: dict[int, int]) -> None:
    """Give each output without a predecessor an input that is last read where it is made."""
    made: dict[int, int] = {}
    read: dict[int, int] = {}
    for index, node in enumerate(chunk.nodes):
        read |= dict.fromkeys((operand.value for operand in node.operands), index)
        made |= dict.fromkeys(node.results(), index)
    for position in sorted(set(chunk.donated) - set(pairs)):
        leaf, taken = chunk.inputs[position], set(pairs.values())
        for output, value in enumerate(chunk.outputs):
            if output in taken or value not in made or layouts[value] != leaf.layout:
                continue
            if read.get(leaf.value, -1) <= made[value]:
                pairs[position] = output
                break
