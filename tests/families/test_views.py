"""Views at a bucket's size read what they read at their own: random ones, element by element."""

from __future__ import annotations

import random
from itertools import accumulate

import numpy as np
import pytest
import torch

from fuse.backends.padding import Moved
from fuse.families.padded_array import PaddedArray, with_room
from fuse.families.parts import Axes, Mark, Refused, marked, room, shape_of
from fuse.families.sizes import Slots
from fuse.families.views import Seen, seen
from fuse.trace.spec import View

SLOTS = 8


def view_of(
    choose: random.Random, x: torch.Tensor, moves: list[bool]
) -> tuple[torch.Tensor, list[bool]]:
    """A random view of a tensor, and which of its sizes move."""
    for _ in range(choose.randrange(1, 4)):
        if not x.dim():
            break
        dim = choose.randrange(x.dim())
        kind = choose.randrange(6)
        if kind == 0:
            other = choose.randrange(x.dim())
            x = x.transpose(dim, other)
            moves[dim], moves[other] = moves[other], moves[dim]
        elif kind == 1 and x.shape[dim] > 2:
            x = x.narrow(dim, choose.randrange(2), x.shape[dim] - 1)
        elif kind == 2:
            x = x.select(dim, choose.randrange(x.shape[dim]))
            moves = moves[:dim] + moves[dim + 1 :]
        elif kind == 3:
            x = x.unsqueeze(dim).expand(*x.shape[:dim], 2, *x.shape[dim:])
            moves = [*moves[:dim], False, *moves[dim:]]
        elif (
            kind == 4
            and dim + 1 < x.dim()
            and x.stride(dim) == x.stride(dim + 1) * x.shape[dim + 1]
        ):
            x = x.flatten(dim, dim + 1)
            moves = [*moves[:dim], moves[dim] or moves[dim + 1], *moves[dim + 2 :]]
        elif kind == 5 and x.shape[dim] > 3 and not moves[dim]:
            x = x[(slice(None),) * dim + (slice(0, None, 2),)]
    return x, moves


def read(found: Seen, array: np.ndarray, layout: Axes) -> np.ndarray:
    """What the view gives of an array with room, without the room."""
    if found.move is not None:
        move = found.move
        made = tuple(part.room for part in move.made)
        program = Moved(tuple(part.room for part in move.parts), move.starts, made, made)
        array = program.make(np, [array])
    flat = np.ascontiguousarray(array).reshape(-1)
    strides = [step * flat.itemsize for step in found.view.strides]
    taken = np.lib.stride_tricks.as_strided(
        flat[found.view.offset :], found.view.shape, strides, writeable=False
    )
    return PaddedArray.of(None, found.axes).value(np.array(taken))


@pytest.mark.parametrize("piece", range(8))
def test_a_view_reads_the_same(piece: int) -> None:
    proven = 0
    for seed in range(piece * 250, (piece + 1) * 250):
        choose = random.Random(seed)
        sizes = [choose.randrange(2, 6) for _ in range(choose.randrange(1, 4))]
        moves = [choose.random() < 0.5 for _ in sizes]
        value = np.arange(float(np.prod(sizes))).reshape(sizes)
        slots = [
            Mark(at, room(size)) if move else None
            for at, (size, move) in enumerate(zip(sizes, moves, strict=True))
        ]
        layout = tuple(marked(*pair) for pair in zip(sizes, slots, strict=True))
        x, moved = view_of(choose, torch.from_numpy(value), list(moves))
        view = View("float64", tuple(x.shape), x.stride(), int(x.storage_offset()))
        marks: Slots = tuple(
            Mark(SLOTS + at, room(size)) if move and size > 1 else None
            for at, (size, move) in enumerate(zip(x.shape, moved, strict=True))
        )
        padded = with_room(value, layout)
        padded[~with_room(np.ones(value.shape, bool), layout)] = np.nan
        assert padded.shape == shape_of(layout)
        try:
            found = seen(view, layout, marks, varies=False)
        except Refused:
            continue
        np.testing.assert_array_equal(read(found, padded, layout), x.numpy())
        proven += 1
    assert proven > 125, proven


def test_rooms_hold_sizes_and_waste_little() -> None:
    rooms = [room(size) for size in range(1, 513)]
    assert all(one >= size for size, one in enumerate(rooms, 1))
    assert sorted(set(rooms)) == [8, 16, 32, 64, 128, 256, 512]
    shares = [one / size for size, one in enumerate(rooms, 1) if size >= 8]
    assert list(accumulate(shares))[-1] / len(shares) < 1.5
