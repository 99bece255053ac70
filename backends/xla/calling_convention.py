"""The calling convention of a program: arrays go in and out one by one, or as rows of stacks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuse.backends.base import Chunk
from fuse.backends.xla.aliasing import aliasing
from fuse.backends.xla.horizontal_packing import HorizontalPacking


@dataclass(frozen=True, slots=True)
class CallingConvention:
    """What an executable needs to know of its program's arguments and results.

    Attributes:
        words: 64-bit words of the packed array of varying numbers, the first argument.
        inputs: positions of the chunk's inputs that are the next arguments.
        stacked: positions of those that are the rows of each stack, the last arguments.
        made: the number of rows of each stack that the program returns after its arrays.
        places: where each of the chunk's outputs is among those arrays and rows, in order.
    """

    words: int
    inputs: tuple[int, ...]
    stacked: tuple[tuple[int, ...], ...]
    made: tuple[int, ...]
    places: tuple[int, ...]


def passed(
    chunk: Chunk, stacks: HorizontalPacking
) -> tuple[Chunk, CallingConvention, tuple[int, ...]]:
    """The chunk of what goes in and out one by one, how, and the arguments it may overwrite.

    A stack is overwritten where it is the program's argument: the chunk consumes all its rows.
    """
    places = {leaf.value: at for at, leaf in enumerate(chunk.inputs)}
    stacked = tuple(tuple(places[value] for value in values) for values in stacks.inputs)
    taken = {at for rows in stacked for at in rows}
    inputs = tuple(at for at in range(len(chunk.inputs)) if at not in taken)
    rows = {value: None for values in stacks.outputs for value in values}
    single = replace(
        chunk,
        inputs=tuple(chunk.inputs[at] for at in inputs),
        outputs=tuple(value for value in chunk.outputs if value not in rows),
        donated=tuple(at for at, old in enumerate(inputs) if old in chunk.donated),
    )
    aliases = aliasing(single)
    single = replace(single, outputs=tuple(single.outputs[at] for at in aliases.order))
    results = {value: at for at, value in enumerate((*single.outputs, *rows))}
    passing = CallingConvention(
        words=chunk.scalars,
        inputs=inputs,
        stacked=stacked,
        made=tuple(map(len, stacks.outputs)),
        places=tuple(results[value] for value in chunk.outputs),
    )
    first = 1 + len(inputs)
    donated = (*(at + 1 for at in aliases.donated), *range(first, first + len(stacked)))
    return single, passing, donated
