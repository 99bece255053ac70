"""The bridge between the native core and the engine: every method that the core calls by name.

``call_engine("plan", ...)`` in the core's C++ is a call of ``Bridge.plan``. What the core passes
are plain tuples, whose types have names here; what it gets back it reads by position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from fuse.engine.profile import Activity, Here
from fuse.engine.runnable import Runnable, Started
from fuse.trace.node import Node
from fuse.trace.scalar_range import Range

# What the core passes. A layout is a buffer's dtype and its shape in memory.

RawLayout = tuple[str, tuple[int, ...]]
RawOperand = tuple[int, str, tuple[int, ...], tuple[int, ...], int, int, bool, bool, RawLayout]
"""Value, dtype, shape, strides, offset, the offset's place, whether this is the trace's first use
of it, whether anything was written to it, and its buffer's layout."""
RawTensor = tuple[int, str, tuple[int, ...], tuple[int, ...], RawLayout]
"""A new tensor: value, dtype, shape, strides, and its buffer's layout."""
RawWrite = tuple[int, int, RawLayout, tuple[tuple[int, ...], tuple[int, ...]] | None]
"""Operand, new value, its layout, and shape and strides where it is resized."""
RawResult = tuple[int, int, int]
"""Kind (``Result::Kind`` in trie_node.h), index and count of a result."""
Recorded = list[tuple[Node, tuple[int, ...]]]
"""The calls of a trace, each with the places of its numbers that vary."""


class RawCall(NamedTuple):
    """A call that was never seen.

    Attributes:
        name: its overload.
        args: every argument of its schema, in order; ``call_description.cpp`` says how they are
            tagged.
        operands: the device's tensors that it reads.
        tensors: the new tensors that it makes.
        writes: what it writes.
        results: where each of its results comes from.
    """

    name: str
    args: tuple[Any, ...]
    operands: list[RawOperand]
    tensors: list[RawTensor]
    writes: list[RawWrite]
    results: list[RawResult]


# What it gets back.

Bounds = tuple[tuple[int, int, int], ...] | tuple[Range]
"""The bounds of a view's offset, or the range of a plain number; ``()``: every number will do."""
Made = tuple[tuple[int, torch.dtype, tuple[int, ...]], ...]
"""New tensors by their numbers, with their dtypes and strides."""


class Description(NamedTuple):
    """What a call is.

    Attributes:
        node: the call, which the core keeps and hands back in ``Recorded``.
        blocks: random blocks that it draws.
        pinned: places of numbers that must stay constants.
        varying: places of numbers that vary from the start, with their bounds.
        made: the new tensors that are not as inferred.
    """

    node: Node
    blocks: int
    pinned: tuple[int, ...]
    varying: tuple[tuple[int, Bounds], ...]
    made: Made


class BoundPlan(NamedTuple):
    """A plan, and whether there are too many now, so that streams are to be forgotten."""

    runnable: Runnable
    crowded: bool


class Retried(NamedTuple):
    """What could be computed of a trace that failed.

    Attributes:
        arrays: of its live values, ``None`` for those that are lost.
        why: what is said of these when they are asked for.
        error: raised instead of the trace's own, if any.
    """

    arrays: list[Any]
    why: str
    error: Exception | None


class Bridge(Protocol):
    """The engine as the core sees it. Arrays are the backend's."""

    def describe(
        self,
        name: str,
        args: tuple[Any, ...],
        operands: list[RawOperand],
        tensors: list[RawTensor],
        writes: list[RawWrite],
        results: list[RawResult],
        /,
    ) -> Description | None:
        """A call that was never seen; ``None`` sends it to the host."""

    def prepare_inference(self) -> None:
        """Import what PyTorch's shape inference in Python takes; once, before its first call."""

    def generalise(self, node: Node, place: int, /) -> Bounds | None:
        """Within which bounds a number of a call may vary; ``None`` where it must not."""

    def plan(
        self,
        recorded: Recorded,
        live: tuple[int, ...],
        donatable: tuple[int, ...],
        read: tuple[int, ...],
        waits: bool,
        /,
    ) -> BoundPlan:
        """The plan of a trace, with its executables, which may be waited for."""

    def drawn(self, recorded: Recorded, /) -> str:
        """The calls of a trace in the language of Graphviz."""

    def profile(self, here: Callable[[], Here] | None, /) -> list[Activity]:
        """Begin to note what is done for a profiler; ``None`` ends it. What has been noted."""

    def start(
        self,
        runnable: Runnable,
        started: Started | None,
        leaves: list[Any],
        scalars: bytes,
        stages: int,
        device: int,
        /,
    ) -> Started | None:
        """Run the first stages of a plan whose trace is still being recorded."""

    def execute(
        self,
        runnable: Runnable,
        leaves: list[Any],
        scalars: bytes,
        reason: str,
        started: Started | None,
        device: int,
        /,
    ) -> list[Any]:
        """Run a plan on a device; the arrays of its live values."""

    def waits(self, runnable: Runnable, /) -> bool:
        """Whether an executable of a plan is still being made."""

    def retry(
        self,
        recorded: Recorded,
        live: tuple[int, ...],
        leaves: list[Any],
        scalars: bytes,
        why: str,
        device: int,
        /,
    ) -> Retried:
        """What can be computed of a trace that failed, and why the rest is lost."""

    def host_fallback(self, name: str, why: str, /) -> None:
        """An operator runs on the host; may raise."""

    def put(self, data: torch.Tensor, dtype: str, shape: tuple[int, ...], device: int, /) -> Any:
        """An array from host memory."""

    def get(self, array: Any, /) -> np.ndarray:
        """An array's bytes on the host, flat."""

    def memory_info(self, device: int, held: int, /) -> tuple[int, int]:
        """Bytes of a device that are free, where values take ``held``, and all that it has."""

    def no_memory(self, nbytes: int, held: int, largest: int, operator: str, /) -> str:
        """What an ``OutOfMemoryError`` says."""

    def wait(self) -> None:
        """Return once everything handed on so far has been computed."""

    def idle(self) -> bool:
        """Whether ``wait`` would return at once."""
