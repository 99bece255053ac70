"""Data that the CPU's kernels refuse: an error where results are read, as it is at their call.

XLA clamps an index that is out of range, and samples from what are no probabilities. So a trace is
planned with checks (``fuse.backends.data_checks``), whose state is one more of its results: three
numbers, read after what the program itself reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from fuse.backends.data_checks import (
    DataCheck,
    IndexCheck,
    ProbabilityCheck,
    State,
    WeightsCheck,
)
from fuse.backends.written_once import target_of
from fuse.errors import describe
from fuse.trace.bind import named
from fuse.trace.functional import qualified_name
from fuse.trace.node import (
    CHECK,
    Arg,
    HostArg,
    Node,
    NumberArg,
    Operand,
    Output,
    TensorArg,
    Trace,
)
from fuse.trace.spec import Layout, View

MOST: Final = 64
"""States that are kept of programs that read nothing; the older half is looked at then."""
_LAYOUT: Final = Layout("int64", (3,))
_VIEW: Final = View("int64", (3,), (1,))


@dataclass(frozen=True, slots=True)
class Indexing:
    """How an operator takes an index.

    Attributes:
        index: the argument, a tensor or a list of them with ``None`` for whole dimensions.
        indexed: the tensor whose places it names.
        dim: the dimension, or the argument that says so; ``None`` for all elements in a row.
        wraps: whether an index below 0 counts from the end.
        ignored: the argument that is an index which names no place.
    """

    index: str = "index"
    indexed: str = "self"
    dim: int | str | None = "dim"
    wraps: bool = False
    ignored: str = ""


_ALONG: Final = Indexing()
_LISTED: Final = Indexing("indices", wraps=True)
_ROWS: Final = Indexing("indices", "weight", 0)
_FLAT: Final = Indexing(dim=None, wraps=True)
INDEXING: Final[dict[str, Indexing]] = {
    **dict.fromkeys(("gather", "scatter_add", "index_add", "index_copy", "index_reduce"), _ALONG),
    **dict.fromkeys(("scatter.src", "scatter.value", "scatter.reduce"), _ALONG),
    **dict.fromkeys(("scatter.value_reduce", "scatter_reduce.two", "index_select"), _ALONG),
    **dict.fromkeys(("index_fill.int_Scalar", "index_fill.int_Tensor"), Indexing(wraps=True)),
    **dict.fromkeys(("index.Tensor", "index_put", "_index_put_impl"), _LISTED),
    **dict.fromkeys(("embedding", "_embedding_bag", "_embedding_bag_forward_only"), _ROWS),
    **dict.fromkeys(("take", "put"), _FLAT),
    "nll_loss_forward": Indexing("target", dim=-1, ignored="ignore_index"),
    "nll_loss2d_forward": Indexing("target", dim=1, ignored="ignore_index"),
    "multi_margin_loss": Indexing("target", dim=-1),
}
"""By functional overload, those whose CPU kernels raise for an index that is out of range."""
PROBABILITIES: Final[dict[str, tuple[str, DataCheck]]] = {
    "binary_cross_entropy": ("self", ProbabilityCheck()),
    "bernoulli": ("self", ProbabilityCheck()),
    "bernoulli.Tensor": ("p", ProbabilityCheck()),
    "multinomial": ("self", WeightsCheck()),
}
"""By functional overload, those whose CPU kernels refuse numbers: the argument, and the check."""


class _Look(NamedTuple):
    """What a call is to be checked for: an operand, and of an index what it names places of."""

    check: DataCheck
    values: Operand
    indexed: Operand | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """A trace with checks.

    Attributes:
        trace: it.
        state: the value that is the last check's state.
        calls: what is checked, in order, and for what.
    """

    trace: Trace
    state: int
    calls: tuple[tuple[Node, DataCheck], ...]


def with_checks(trace: Trace) -> Checked | None:
    """The trace with a check before every call that takes such data; ``None`` where none does.

    The same data is checked once for the same.
    """
    nodes: list[Node] = []
    calls: list[tuple[Node, DataCheck]] = []
    known = set()
    state = trace.next_value()
    for node in trace.nodes:
        for look in _looks_at(node):
            values = look.values
            key = (values.value, values.view, node.slot_of(values.place), look.check)
            if key not in known:
                known.add(key)
                nodes.append(_check(node, look, state, first=not calls))
                calls.append((node, look.check))
                state += 1
        nodes.append(node)
    if not calls:
        return None
    return Checked(replace(trace, nodes=tuple(nodes)), state, tuple(calls))


def _looks_at(node: Node) -> Iterator[_Look]:
    if node.target in INDEXING:
        yield from _indices(node, INDEXING[node.target])
    elif node.target in PROBABILITIES:
        name, check = PROBABILITIES[node.target]
        values = _operand(node, named(node)[name])
        if values is not None and values.view.numel:
            yield _Look(check, values)


def _indices(node: Node, how: Indexing) -> Iterator[_Look]:
    given = named(node)
    indexed = _operand(node, given[how.indexed])
    ignored = given[how.ignored] if how.ignored else None
    if isinstance(ignored, (HostArg, NumberArg)):
        if node.slot_of(ignored.place) is not None:
            return  # it moves, as no loop's does
        ignored = int(ignored.number)  # type: ignore[arg-type]  # of an integer argument
    if indexed is None:
        return
    shape = indexed.view.shape
    listed = isinstance(given[how.index], tuple)
    for at, argument in enumerate(given[how.index] if listed else (given[how.index],)):
        index = _operand(node, argument)
        if index is None or index.view.dtype in ("bool", "uint8") or index.view.numel == 0:
            continue
        dims = tuple(range(len(shape)))
        if how.dim is not None and shape:
            dim = at if listed else given[how.dim] if isinstance(how.dim, str) else how.dim
            dims = (dim % len(shape),)
        sizes = tuple(shape[dim] for dim in dims)
        yield _Look(IndexCheck(sizes, dims, how.wraps, ignored), index, indexed)


def _operand(node: Node, argument: Any) -> Operand | None:
    return node.operands[argument.index] if isinstance(argument, TensorArg) else None


def _check(node: Node, look: _Look, state: int, first: bool) -> Node:
    """The check that makes the state after ``state``, which is memory of zeros for the first."""
    read = [look.values] if look.indexed is None else [look.values, look.indexed]
    slots = [node.slot_of(operand.place) for operand in read]
    operands = [Operand(state, _VIEW, _LAYOUT, 0, fresh=first, initialised=not first)]
    operands += [replace(operand, place=at, fresh=False) for at, operand in enumerate(read, 1)]
    indexed: Arg = None if look.indexed is None else TensorArg(2)
    return Node(
        CHECK,
        target_of(CHECK, look.check),
        (TensorArg(0), TensorArg(1), indexed),
        tuple(operands),
        (Output(state + 1, _VIEW, _LAYOUT),),
        (),
        (0,),
        source=node.source,
        dynamic=tuple((at, slot) for at, slot in enumerate(slots, 1) if slot is not None),
    )


class DataChecks:
    """The states of what has run since they were read. For every thread.

    Attributes:
        states: with what was checked.
        asserted: checks what the program has asserted since then; ``None`` where that is nothing.
    """

    def __init__(self, read: Callable[[Any], np.ndarray]) -> None:
        """``read`` copies an array of the device to the host."""
        self._read = read
        self.states: list[tuple[Any, Checked]] = []
        self.asserted: Callable[[], None] | None = None

    def add(self, state: Any, checked: Checked) -> None:
        """Note the state of a run, an array of the device. Raises nothing: a run has gone well."""
        self.states.append((state, checked))
        if len(self.states) > MOST:
            states, self.states = self.states, []  # another thread may add, or check
            older, newer = states[: MOST // 2], states[MOST // 2 :]
            failed = [one for one in older if self._state(one[0]).first]
            self.states = [*failed[:1], *newer, *self.states]

    def check(self) -> None:
        """Raise for the first call that failed: ``IndexError`` of an index, else ``RuntimeError``.

        Waits for the device where there is anything to read.
        """
        if self.states:
            states, self.states = self.states, []  # at once, likewise
            self._check(states)
        if self.asserted is not None:
            self.asserted()

    def _check(self, states: list[tuple[Any, Checked]]) -> None:
        for array, checked in states:
            state = self._state(array)
            if state.first:
                raise _error(*checked.calls[state.first - 1], state.value)

    def _state(self, array: Any) -> State:
        return State(*map(int, self._read(array)))


def _error(node: Node, check: DataCheck, index: int) -> Exception:
    if isinstance(check, IndexCheck):
        places = math.prod(size or 0 for size in check.sizes)  # all are known of a recorded call
        what = f"index {index} is out of range for {places} places"
    elif isinstance(check, ProbabilityCheck):
        what = "it takes numbers from 0 to 1, and got others"
    else:
        what = "a row of probabilities has one that is negative, infinite or NaN, or is all zeros"
    text = describe(
        what,
        operator=qualified_name(node.op),
        operands=node.describe_operands(),
        source=node.source,
        hint='it is checked where results are read; fuse.set_mode("debug") raises at the call',
    )
    return IndexError(text) if isinstance(check, IndexCheck) else RuntimeError(text)
