"""Takes apart the flat arrays into which FSDP and DDP pack what a collective moves.

A collective on one flat buffer saves launches where each is a call. In one program of all ranks it
costs: a TPU lays a matrix out in tiles and a flat array in a line, so each piece is laid out anew
before and after, at some 0.2 cycles an element on a v5e, and the compiler writes a loop for each.
Here each piece is moved as it lies, along its first dimension, and the compiler itself joins small
collectives. What a buffer is made of, and what is read of it, follows from the operations' views;
where a use is anything else the buffer stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, count

from fuse.backends.base import Chunk
from fuse.backends.xla.ranks.programs import Form, rows_of
from fuse.backends.xla.ranks.step import Joined, Part
from fuse.trace.node import Leaf, Node, Operand, TensorArg, layouts_of
from fuse.trace.spec import Layout, View, contiguous_strides

KINDS = ("all_gather", "reduce_scatter", "all_reduce")


@dataclass(frozen=True, slots=True)
class Piece:
    """What lies at some elements of a rank's flat part.

    ``value`` is the chunk's that packs it; of one that has been moved, the step's.
    """

    offset: int
    length: int
    value: int
    layout: Layout


class _Refused(Exception):
    """A use that is not understood: the buffer stays."""


def unpacked(step: Joined) -> Joined:
    """The same step, its flat collectives taken apart where that is possible."""
    made = [value for part in step.parts for value in part.makes]
    free = 1 + max([*made, *(value for value, _ in step.inputs)], default=0)
    taken = _Step(list(step.parts), {*step.outputs, *dict(step.shapes)}, free)
    for at, part in enumerate(step.parts):
        if isinstance(part.what, Form) and _is_flat(part, part.what):
            try:
                taken.take_apart(at)
            except _Refused:
                continue
    return replace(step, parts=tuple(taken.parts))


def _is_flat(part: Part, form: Form) -> bool:
    return form.kind in KINDS and form.parts == 1 and len(part.reads) == len(part.makes) == 1


@dataclass
class _Step:
    """A step in the making, its parts in their places.

    Attributes:
        kept: values that are there after the step.
        free: the next number for a value.
    """

    parts: list[Part]
    kept: set[int]
    free: int

    def take_apart(self, at: int) -> None:
        """Replace a collective and its chunks; raises ``_Refused`` and changes nothing."""
        part, form = self.parts[at], self.parts[at].what
        assert isinstance(form, Form)
        (result,) = part.makes
        if result in self.kept:
            raise _Refused
        numbers = count(self.free)
        maker, packer, own, start = self._packer(part.reads[0])
        pieces = packed(packer, own, start, form)
        changed = {maker: _exposed(self.parts[maker], packer, pieces, numbers)}
        names = _names(changed[maker])
        moved = [
            replace(one, value=next(numbers), layout=_moved(form, one.layout)) for one in pieces
        ]
        for i, other in enumerate(self.parts):
            if result in other.reads:
                used = self.kept.union(*(one.reads for one in self.parts))
                changed[i] = _reading(changed.get(i, other), result, moved, form, used)
        changed[at] = Part(
            replace(form, sources=tuple(one.layout.numel for one in pieces), rows=True),
            tuple(names[piece.value] for piece in pieces),
            tuple(one.value for one in moved),
            tuple(one.layout.shape for one in moved),
        )
        self.free = next(numbers)
        for i, one in changed.items():
            self.parts[i] = one

    def _packer(self, source: int) -> tuple[int, Chunk, int, int]:
        """The part, its chunk, and the value in it that a value of the step is, or is a copy of a
        part of; and where that begins."""
        maker = next((i for i, one in enumerate(self.parts) if source in one.makes), None)
        chunk = None if maker is None else self.parts[maker].what
        if maker is None or not isinstance(chunk, Chunk):
            raise _Refused
        value = chunk.outputs[self.parts[maker].makes.index(source)]
        inputs = [leaf.value for leaf in chunk.inputs]
        for node in chunk.nodes:
            if node.op == "clone" and value in node.results() and len(node.operands) == 1:
                (copied,) = node.operands
                if copied.value in inputs and copied.view.strides == (1,) and not _varies(node):
                    of = self.parts[maker].reads[inputs.index(copied.value)]
                    at, packer, value, start = self._packer(of)
                    return at, packer, value, start + copied.view.offset
        return maker, chunk, value, 0


def _names(part: Part) -> dict[int, int]:
    """The step's numbers of what a chunk takes and gives, by the chunk's own."""
    chunk = part.what
    assert isinstance(chunk, Chunk)
    taken = zip((leaf.value for leaf in chunk.inputs), part.reads, strict=True)
    return dict(taken) | dict(zip(chunk.outputs, part.makes, strict=True))


def _exposed(part: Part, chunk: Chunk, pieces: list[Piece], numbers: Iterator[int]) -> Part:
    """A chunk that gives the pieces too, under new numbers of the step."""
    known = _names(part)
    added = [one for one in dict.fromkeys(piece.value for piece in pieces) if one not in known]
    makes = (*part.makes, *(next(numbers) for _ in added))
    return replace(part, what=replace(chunk, outputs=(*chunk.outputs, *added)), makes=makes)


def _moved(form: Form, layout: Layout) -> Layout:
    """How a piece lies that has been moved along its first dimension."""
    first, *others = rows_of(form, layout.shape)
    if form.kind == "all_gather":
        first *= form.ranks
    elif form.kind == "reduce_scatter":
        if first % form.ranks:
            raise _Refused
        first //= form.ranks
    return Layout(form.dtype, (first, *others))


# ---- what a buffer is made of ----------------------------------------------------------------


def packed(chunk: Chunk, value: int, start: int, form: Form) -> list[Piece]:
    """The pieces of a chunk's flat value from ``start`` on, in order.

    Raises where it is made in another way.
    """
    packer = _Packer(chunk)
    rows = form.ranks if form.kind == "reduce_scatter" else 1
    length = form.sources[0] // rows
    found = packer.rows_of(value, rows) if rows > 1 else packer.line_of(value)
    found = [
        replace(piece, offset=piece.offset - start)
        for piece in found
        if start <= piece.offset < start + length
    ]
    ends = list(accumulate((piece.length for piece in found), initial=0))
    if [piece.offset for piece in found] != ends[:-1] or ends[-1] != length:
        raise _Refused
    return found


class _Packer:
    """Follows a chunk's values back to what was copied into them."""

    def __init__(self, chunk: Chunk) -> None:
        self._makers = {value: node for node in chunk.nodes for value in node.results()}
        self._layouts = layouts_of(chunk.inputs, chunk.nodes)

    def line_of(self, value: int) -> list[Piece]:
        """Of a flat array, into which pieces were copied one by one."""
        found: dict[tuple[int, int], Piece] = {}
        flat = self._layouts[value]
        while (node := self._makers.get(value)) is not None:
            if node.op == "clone" and node.operands[0].view.covers(flat):
                value = node.operands[0].value
                continue
            if _varies(node):
                raise _Refused
            target, source = _copied(node)
            view = node.writes[0].view
            if view.strides not in ((1,), ()) or node.writes[0].layout != flat:
                raise _Refused
            place = view.offset, view.numel
            if place not in found:
                found[place] = self._piece(place, source, flat.dtype)
            value = target.value
        return sorted(found.values(), key=lambda piece: piece.offset)

    def _piece(self, place: tuple[int, int], source: Operand, dtype: str) -> Piece:
        """A piece that was copied: the whole of a value, or of what was packed before."""
        layout = self._layouts[source.value]
        if source.view.numel != place[1]:
            raise _Refused  # it is copied to several places
        if source.view.covers(layout):
            return Piece(*place, source.value, layout)
        if layout.dtype != dtype or source.view.strides != (1,):
            raise _Refused
        wanted = source.view.offset, source.view.numel
        for one in self.line_of(source.value):
            if (one.offset, one.length) == wanted:
                return replace(one, offset=place[0])
        raise _Refused

    def rows_of(self, value: int, rows: int) -> list[Piece]:
        """Of an array of a row for each rank, into which pieces were put side by side."""
        node = self._makers.get(value)
        if (
            node is None
            or node.op != "cat.out"
            or _varies(node)
            or not isinstance(node.args[0], tuple)
        ):
            raise _Refused
        flat = self._layouts[value]
        if node.args[1] != 1 or not node.writes[0].view.covers(flat) or flat.shape[0] != rows:
            raise _Refused
        found, offset = [], 0
        for argument in node.args[0]:
            assert isinstance(argument, TensorArg)
            one = node.operands[argument.index]
            layout = self._layouts[one.value]
            if not one.view.covers(layout) or one.view.shape[0] != rows:
                raise _Refused
            length = one.view.shape[1]
            found.append(Piece(offset, length, one.value, layout))
            offset += length
        return found


def _varies(node: Node) -> bool:
    """Whether an operand's offset is one of the numbers that vary."""
    slots = dict(node.dynamic)
    return any(operand.place in slots for operand in node.operands)


def _copied(node: Node) -> tuple[Operand, Operand]:
    """Target and source of a copy into a part of a buffer."""
    if node.op != "copy_" or len(node.writes) != 1 or not isinstance(node.args[1], TensorArg):
        raise _Refused
    target = node.operands[node.writes[0].operand]
    return target, node.operands[node.args[1].index]


# ---- what is read of it ----------------------------------------------------------------------


def _reading(part: Part, result: int, moved: list[Piece], form: Form, used: Container[int]) -> Part:
    """A part that reads the pieces in place of the flat result; what it wrote into that is not
    among the values ``used`` after it.
    """
    chunk = part.what
    if not isinstance(chunk, Chunk):
        raise _Refused
    at = part.reads.index(result)
    flat = chunk.inputs[at].value
    if part.reads.count(result) > 1:
        raise _Refused
    free = 1 + max(_numbers(chunk))
    leaves = [Leaf(free + i, one.layout) for i, one in enumerate(moved)]
    rows = form.ranks if form.kind == "all_gather" else 1
    reader = _Reader(
        {(one.offset, one.length): leaf.value for one, leaf in zip(moved, leaves, strict=True)},
        {leaf.value: leaf.layout for leaf in leaves},
        rows,
        sum(one.length for one in moved),
        free + len(leaves),
    )
    nodes = reader.rewritten(chunk.nodes, flat)
    kept = [i for i, value in enumerate(chunk.outputs) if value not in reader.versions]
    if any(makes in used for i, makes in enumerate(part.makes) if i not in kept):
        raise _Refused
    inputs = (*chunk.inputs[:at], *chunk.inputs[at + 1 :], *leaves)
    reads = (*part.reads[:at], *part.reads[at + 1 :], *(one.value for one in moved))
    renewed = Chunk(tuple(nodes), inputs, tuple(chunk.outputs[i] for i in kept), (), chunk.scalars)
    return Part(renewed, reads, tuple(part.makes[i] for i in kept))


def _numbers(chunk: Chunk) -> Iterator[int]:
    yield from (leaf.value for leaf in chunk.inputs)
    for node in chunk.nodes:
        yield from node.results()
        yield from (operand.value for operand in node.operands)


@dataclass
class _Reader:
    """Rewrites a chunk's nodes: a flat value, and what is written into it, becomes its pieces.

    Attributes:
        pieces: place in a rank's flat part -> value of the chunk; of the first version.
        layouts: how those values lie.
        rows: ranks whose parts the flat value has one after the other; 1 for a rank's own.
        whole: elements of a rank's part.
        free: the next number for a value.
        versions: flat values, the result and what writing into it made -> their pieces.
    """

    pieces: dict[tuple[int, int], int]
    layouts: dict[int, Layout]
    rows: int
    whole: int
    free: int
    versions: dict[int, dict[tuple[int, int], int]] = field(default_factory=dict)

    def rewritten(self, nodes: tuple[Node, ...], flat: int) -> list[Node]:
        """The nodes; raises where one uses the flat value in another way."""
        self.versions = {flat: self.pieces}
        return [self._node(node) if self._uses(node) else node for node in nodes]

    def _uses(self, node: Node) -> bool:
        return any(operand.value in self.versions for operand in node.operands)

    def _node(self, node: Node) -> Node:
        if _varies(node):
            raise _Refused
        operands, places = list(node.operands), {}
        for number, operand in enumerate(node.operands):
            if operand.value in self.versions:
                if operand.view.dtype != operand.layout.dtype:
                    raise _Refused
                places[number] = self._place(operand.view)
                value = self.versions[operand.value][places[number]]
                view = replace(
                    operand.view, offset=0, strides=contiguous_strides(operand.view.shape)
                )
                operands[number] = replace(
                    operand, value=value, view=view, layout=self.layouts[value]
                )
        writes = list(node.writes)
        for number, write in enumerate(node.writes):
            old = node.operands[write.operand]
            if old.value in self.versions:
                place = places[write.operand]
                if self._place(write.view) != place:
                    raise _Refused
                made, self.free = self.free, self.free + 1
                layout = operands[write.operand].layout
                self.layouts[made] = layout
                self.versions[write.value] = self.versions[old.value] | {place: made}
                view = operands[write.operand].view
                writes[number] = replace(write, value=made, layout=layout, view=view)
        return replace(node, operands=tuple(operands), writes=tuple(writes))

    def _place(self, view: View) -> tuple[int, int]:
        """Which piece a view is, as it lies; raises for anything else."""
        if self.rows > 1:
            place = view.offset, math.prod(view.shape[1:])
            inner = contiguous_strides(view.shape)[1:]
            fits = view.shape[:1] == (self.rows,) and view.strides == (self.whole, *inner)
        else:
            place = view.offset, view.numel
            fits = view.strides == contiguous_strides(view.shape)
        if not fits or place not in self.pieces:
            raise _Refused
        return place
