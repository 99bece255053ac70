"""The recorded program as data: frozen nodes over numbered values.

Values are numbered in the order in which a trace first meets or makes them, so that
equal programs give equal traces whatever tensors they run on. A ``Node`` reads operands
(a value seen through a view), makes new values, and replaces the values of buffers it
writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from fuse.trace.spec import Layout, View

CHECK: Final = "fuse::check"
"""The operator of checks, which a trace is planned with: see ``fuse.engine.data_checks``."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A value seen through a view.

    ``place`` numbers the view's offset among the node's varying numbers; ``layout`` is
    that of the buffer holding the value; ``fresh`` marks the trace's first use of it.
    A value that is not ``initialised`` is memory nothing was written to: it reads as zeros.
    """

    value: int
    view: View
    layout: Layout
    place: int
    fresh: bool = False
    initialised: bool = True

    def __str__(self) -> str:
        return f"%{self.value}:{self.view}"


@dataclass(frozen=True, slots=True)
class TensorArg:
    """An argument that is operand number ``index`` of the node."""

    index: int

    def __str__(self) -> str:
        return f"${self.index}"


@dataclass(frozen=True, slots=True)
class NumberArg:
    """A ``Scalar`` argument; ``place`` as in ``Operand``."""

    number: float | int
    place: int

    def __str__(self) -> str:
        return repr(self.number)


@dataclass(frozen=True, slots=True)
class HostArg:
    """A 0-d CPU tensor, or a Python number that PyTorch wrapped into one.

    ``place`` is ``None`` where the number can never vary (bool, complex).
    """

    dtype: str
    number: float | int | bool | complex
    wrapped: bool
    place: int | None

    def __str__(self) -> str:
        return f"{self.number!r}:{'wrapped ' if self.wrapped else ''}{self.dtype}"


@dataclass(frozen=True, slots=True)
class DtypeArg:
    """A dtype argument."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DroppedArg:
    """A device or generator: the trace needs neither."""

    def __str__(self) -> str:
        return "_"


Number = bool | int | float | complex
Arg = (
    TensorArg
    | NumberArg
    | HostArg
    | DtypeArg
    | DroppedArg
    | Number
    | str
    | None
    | tuple["Arg", ...]
)
"""An argument of a node: one of the classes above, or a plain Python value; a list is a tuple."""


@dataclass(frozen=True, slots=True)
class Output:
    """A new value: the view its tensor has, and the array its buffer holds."""

    value: int
    view: View
    layout: Layout

    def __str__(self) -> str:
        return f"%{self.value}:{self.view}"


@dataclass(frozen=True, slots=True)
class Write:
    """A new value of the buffer behind operand ``operand``, the region of ``view`` replaced.

    ``view`` is the operand's own, except where ``out=`` resizes its tensor.
    """

    operand: int
    value: int
    layout: Layout
    view: View


@dataclass(frozen=True, slots=True)
class Node:
    """One recorded call.

    Attributes:
        op: the ATen overload PyTorch called, for example ``add_.Tensor``.
        target: the functional overload that computes it, for example ``add.Tensor``.
        args: every schema argument in order: the classes above, or plain Python values;
            lists are tuples.
        slots: for each result of ``target`` in order, the number of the output (or, past
            the outputs, of the write) that takes it; ``None`` drops it.
        dynamic: varying number's place -> its slot in the trace's packed array.
        random: slot of the (seed, offset) pair, or ``None``.
        blocks: Philox blocks the call draws.
        source: the user's ``file:line`` where the call was first seen.
    """

    op: str
    target: str
    args: tuple[Arg, ...]
    operands: tuple[Operand, ...]
    outputs: tuple[Output, ...]
    writes: tuple[Write, ...]
    slots: tuple[int | None, ...]
    blocks: int = 0
    source: str = ""
    dynamic: tuple[tuple[int, int], ...] = ()
    random: int | None = None

    def slot_of(self, place: int | None) -> int | None:
        """The packed array's slot of a varying number, ``None`` while it is a constant."""
        for known, slot in self.dynamic:
            if known == place:
                return slot
        return None

    @property
    def recorded(self) -> bool:
        """Whether the program called it; else it is a check of data, added to be planned."""
        return self.op != CHECK

    def dtypes(self) -> set[str]:
        """Of the operands and outputs, and of the memory behind them: they may differ, as where a
        view reads complex32 as float16 parts."""
        known: tuple[Operand | Output, ...] = (*self.operands, *self.outputs)
        return {dtype for one in known for dtype in (one.view.dtype, one.layout.dtype)}

    def parts(self) -> tuple[Output | Write, ...]:
        """What takes results, as ``slots`` numbers it: the outputs, and after them the writes."""
        return (*self.outputs, *self.writes)

    def results(self) -> Iterator[int]:
        """Every value the node makes, new or written."""
        yield from (output.value for output in self.outputs)
        yield from (write.value for write in self.writes)

    def describe_operands(self) -> tuple[str, ...]:
        """``dtype[shape]`` of every operand, for messages."""
        return tuple(str(operand.view.spec) for operand in self.operands)

    def __str__(self) -> str:
        made = [str(output) for output in self.outputs]
        made += [f"%{w.value}:=%{self.operands[w.operand].value}:{w.view}" for w in self.writes]
        places = {operand.place: operand for operand in self.operands}
        args = ", ".join(_text(arg, self.operands) for arg in self.args)
        notes = [
            f"{'offset ' if place in places else ''}#{place}->s{slot}"
            for place, slot in self.dynamic
        ]
        notes += [f"random s{self.random}"] if self.random is not None else []
        return f"{', '.join(made) or '()'} = {self.op}({args})" + (
            f"  [{', '.join(notes)}]" if notes else ""
        )


def _without(arg: Arg, places: tuple[int, ...]) -> Arg:
    """The argument with a varying number's first value taken out: it is no part of the program."""
    if isinstance(arg, (NumberArg, HostArg)) and arg.place in places:
        return replace(arg, number=0.0 if isinstance(arg.number, float) else 0)
    if isinstance(arg, tuple):
        return tuple(_without(item, places) for item in arg)
    return arg


def _at_zero(operand: Operand, places: tuple[int, ...]) -> Operand:
    """The operand with a varying offset taken out, likewise."""
    if operand.place in places:
        return replace(operand, view=replace(operand.view, offset=0))
    return operand


def _text(arg: Arg, operands: tuple[Operand, ...]) -> str:
    if isinstance(arg, TensorArg):
        return str(operands[arg.index])
    if isinstance(arg, tuple):
        return f"[{', '.join(_text(item, operands) for item in arg)}]"
    return str(arg) if not isinstance(arg, str) else repr(arg)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that exists before the trace: an input array, in order of first use."""

    value: int
    layout: Layout

    def __str__(self) -> str:
        return f"%{self.value}:{self.layout}"


def layouts_of(leaves: Iterable[Leaf], nodes: Iterable[Node]) -> dict[int, Layout]:
    """The layout of the array of every value that ``nodes`` read or make."""
    found = {leaf.value: leaf.layout for leaf in leaves}
    for node in nodes:
        for operand in node.operands:
            found.setdefault(operand.value, operand.layout)
        found |= {output.value: output.layout for output in node.outputs}
        found |= {write.value: write.layout for write in node.writes}
    return found


@dataclass(frozen=True, slots=True)
class Trace:
    """The nodes recorded between two cuts, and the leaves they read."""

    nodes: tuple[Node, ...]
    leaves: tuple[Leaf, ...]
    scalars: int = 0

    @staticmethod
    def of(recorded: Iterable[tuple[Node, tuple[int, ...]]]) -> Trace:
        """Join recorded nodes, numbering the slots of the numbers that vary.

        Each node comes with the places that have become dynamic, ascending; its slots
        follow those of the nodes before it, and a random node's seed and offset come last.
        """
        nodes: list[Node] = []
        leaves: list[Leaf] = []
        slot = 0
        for node, places in recorded:
            dynamic = tuple((place, slot + index) for index, place in enumerate(places))
            slot += len(places)
            random = slot if node.blocks else None
            slot += 2 if node.blocks else 0
            nodes.append(
                replace(
                    node,
                    dynamic=dynamic,
                    random=random,
                    args=tuple(_without(arg, places) for arg in node.args),
                    operands=tuple(_at_zero(operand, places) for operand in node.operands),
                    writes=tuple(
                        replace(write, view=replace(write.view, offset=0))
                        if node.operands[write.operand].place in places
                        else write
                        for write in node.writes
                    ),
                )
            )
            leaves += [
                Leaf(operand.value, operand.layout)
                for operand in node.operands
                if operand.fresh and operand.initialised
            ]
        return Trace(tuple(nodes), tuple(leaves), slot)

    def next_value(self) -> int:
        """A number larger than those of all values that are made or read."""
        made = {value for node in self.nodes for value in node.results()}
        read = {operand.value for node in self.nodes for operand in node.operands}
        return max(made | read, default=0) + 1

    def layouts(self) -> dict[int, Layout]:
        """The layout of every value's array."""
        return layouts_of(self.leaves, self.nodes)

    def __str__(self) -> str:
        head = f"trace({', '.join(map(str, self.leaves))}; scalars={self.scalars})"
        return "\n".join([head, *(f"  {node}" for node in self.nodes)])
