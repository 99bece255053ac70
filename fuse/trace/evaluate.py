"""The evaluator: a node's arguments resolved, its target computed, its results stored.

What arrays are is left to subclasses: JAX's tracers, NumPy's arrays or PyTorch's tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import torch

from fuse.errors import VerifyError
from fuse.trace.bind import bind
from fuse.trace.node import DtypeArg, HostArg, Node, NumberArg, Operand, Output, TensorArg, Write

V = TypeVar("V")
"""What stands for a buffer's value."""


class Scalars(Protocol):
    """The packed array of dynamic scalars, as numbers of whatever computes with them."""

    def integer(self, slot: int) -> Any:
        """Word ``slot`` as a signed integer."""

    def unsigned(self, slot: int) -> Any:
        """Word ``slot`` as an unsigned integer."""

    def number(self, slot: int, like: object) -> Any:
        """Word ``slot`` as a float or an integer, whichever ``like`` is."""


class HostScalars:
    """The packed array of dynamic scalars as Python numbers."""

    def __init__(self, words: bytes) -> None:
        self._words = np.frombuffer(words, np.uint64)

    def unsigned(self, slot: int) -> int:
        """Word ``slot`` as an unsigned integer."""
        return int(self._words[slot])

    def integer(self, slot: int) -> int:
        """Word ``slot`` as a signed integer."""
        return int(self._words.view(np.int64)[slot])

    def number(self, slot: int, like: object) -> float | int:
        """Word ``slot`` as a float or an integer, whichever ``like`` is."""
        if isinstance(like, float):
            return float(self._words.view(np.float64)[slot])
        return self.integer(slot)


class Arguments(ABC):
    """Resolves the arguments of a node for what computes it.

    Attributes:
        for_kernel: whether that is an operator of PyTorch's, which takes its dtypes and lists of
            anything. A rule takes dtypes by name, and lists of tensors only.
    """

    for_kernel: ClassVar[bool] = False

    def __init__(self, node: Node) -> None:
        self.node = node

    def bound(self) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments in the order of the target's schema."""
        positional, keyword = bind(self.node)
        return (
            [self._resolved(value) for value in positional],
            {name: self._resolved(value) for name, value in keyword.items()},
        )

    @abstractmethod
    def tensor(self, operand: Operand) -> Any:
        """The elements of an operand's view."""

    @abstractmethod
    def host_tensor(self, value: HostArg) -> Any:
        """A 0-d CPU tensor, or a number that PyTorch wrapped into one."""

    def number(self, value: HostArg | NumberArg) -> Any:
        """The number of an argument."""
        return value.number

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, TensorArg):
            return self.tensor(self.node.operands[value.index])
        if isinstance(value, NumberArg):
            return self.number(value)
        if isinstance(value, HostArg):
            return self.host_tensor(value)
        if isinstance(value, DtypeArg):
            return getattr(torch, value.name) if self.for_kernel else value.name
        if isinstance(value, tuple):
            items = [self._resolved(item) for item in value]
            listed = self.for_kernel or any(isinstance(item, TensorArg) for item in value)
            return items if listed else tuple(items)
        return value


class Evaluator(Arguments, Generic[V]):
    """Evaluates a node: reads values of buffers, and adds those that the node makes.

    Attributes:
        values: of the buffers, by number; memory never written to has none.
        misshapen: what is raised for a result of another shape than was recorded.
    """

    misshapen: ClassVar[type[Exception]] = VerifyError

    def __init__(self, node: Node, values: dict[int, V], scalars: Scalars) -> None:
        super().__init__(node)
        self.values, self.scalars = values, scalars

    @abstractmethod
    def compute(self, positional: list[Any], keyword: dict[str, Any]) -> Any:
        """The results of the node's target, lists of them opened or not."""

    @abstractmethod
    def write(self, old: V | None, part: Output | Write, result: Any, offset: Any) -> V:
        """A buffer's new value: ``old``, or zeros, with ``result`` in the place of the view.

        A gradient that was not asked for is ``None``: nobody reads it. ``offset`` replaces the
        view's own, unless it is ``None``.
        """

    def number(self, value: HostArg | NumberArg) -> Any:
        """The number of an argument, from the packed array where it is dynamic."""
        slot = self.node.slot_of(value.place)
        return value.number if slot is None else self.scalars.number(slot, value.number)

    def offset(self, operand: Operand) -> Any:
        """What replaces the offset of an operand's view, ``None`` while that is a constant."""
        slot = self.node.slot_of(operand.place)
        return None if slot is None else self.scalars.integer(slot)

    def evaluate(self) -> None:
        """Compute the node, and store its results."""
        node = self.node
        results = flatten(self.compute(*self.bound()))
        if len(results) < len(node.slots):
            raise VerifyError(f"{len(results)} results for {len(node.slots)} slots of\n  {node}")
        parts = node.parts()
        for slot, result in zip(node.slots, results, strict=False):
            if slot is not None:
                self._store(parts[slot], result)

    def _store(self, part: Output | Write, result: Any) -> None:
        if result is not None and tuple(result.shape) != part.view.shape:
            made_by = "a kernel" if self.for_kernel else f"the rule of {self.node.target}"
            shapes = f"{tuple(result.shape)}, not {part.view.shape}"
            raise self.misshapen(f"{made_by} returned shape {shapes}")
        old = offset = None
        if isinstance(part, Write):
            target = self.node.operands[part.operand]
            old, offset = self.values.get(target.value), self.offset(target)
        self.values[part.value] = self.write(old, part, result, offset)


def flatten(results: Any) -> list[Any]:
    """Results as one list, lists among them opened."""
    if not isinstance(results, (list, tuple)):
        return [results]
    return [item for result in results for item in flatten(result)]
