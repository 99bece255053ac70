"""What a rule of any backend may ask about the operation it computes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from fuse.trace.decompose import Step
from fuse.trace.evaluate import Scalars
from fuse.trace.node import Node, Output, Write
from fuse.trace.promote import promoted_operands, result_type
from fuse.trace.spec import TensorSpec, contiguous_strides

Scalar = bool | int | float | complex
"""A number that PyTorch takes as one."""


class Array(Protocol):
    """What rules of every backend may ask of an array: NumPy's and JAX's have it."""

    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102

    @property
    def ndim(self) -> int: ...  # noqa: D102

    @property
    def size(self) -> int: ...  # noqa: D102

    @property
    def dtype(self) -> np.dtype[Any]: ...  # noqa: D102

    def reshape(self, shape: tuple[int, ...], /) -> Self: ...  # noqa: D102

    def astype(self, dtype: Any, /) -> Self: ...  # noqa: D102

    def __getitem__(self, key: slice, /) -> Self: ...

    def __sub__(self, other: Any, /) -> Self: ...


A = TypeVar("A", bound=Array)
"""The arrays of one backend."""
Part = Array | int | None
Result = Part | Sequence[Part | Sequence[Array]]
Rule = Callable[..., Result]
Register = Callable[..., Callable[[Rule], Rule]]
"""A backend's ``rule``: the decorator that puts rules into its table."""


@dataclass(frozen=True)
class Operation(ABC, Generic[A]):
    """Facts about one operation: its results, its promoted dtype, its randomness.

    Attributes:
        out: shape and dtype of every tensor result, flattened, in schema order; an
            undefined result has no entry.
        result_type: PyTorch's promoted dtype over all tensor and Scalar operands
            (``torch.result_type`` generalised to n operands).
        seed, offset: 0-d uint64 arrays or integers for a random operator, else ``None``.
        contiguous: whether each tensor operand, in order, is row-major; empty where that is
            not known (a step of a decomposition).
    """

    out: tuple[TensorSpec, ...]
    result_type: str
    seed: Any = None
    offset: Any = None
    contiguous: tuple[bool, ...] = ()

    @classmethod
    def of(cls, node: Node, scalars: Scalars, **more: Any) -> Self:
        """That of a node; ``more`` is what a subclass has beside."""
        parts: tuple[Output | Write, ...] = (*node.outputs, *node.writes)
        out = tuple(parts[slot].view.spec for slot in node.slots if slot is not None)
        promoted = result_type(promoted_operands(node)) or (out[0].dtype if out else "float32")
        seed = offset = None
        if node.random is not None:
            seed, offset = scalars.unsigned(node.random), scalars.unsigned(node.random + 1)
        views = [operand.view for operand in node.operands]
        contiguous = tuple(view.strides == contiguous_strides(view.shape) for view in views)
        return cls(out, promoted, seed, offset, contiguous, **more)

    @classmethod
    def of_step(cls, step: Step, arguments: Sequence[Any], **more: Any) -> Self:
        """That of a step of a decomposition, given all of its arguments."""
        found: list[tuple[str, int, bool]] = []
        for value in arguments:
            for item in value if isinstance(value, list) else [value]:
                if hasattr(item, "dtype"):
                    found.append((str(item.dtype), item.ndim, False))
                elif isinstance(item, float):
                    found.append(("float64", 0, True))
                elif isinstance(item, int) and not isinstance(item, bool):
                    found.append(("int64", 0, True))
        return cls(step.specs, result_type(found) or step.specs[0].dtype, **more)

    @abstractmethod
    def promoted(self, *values: A | Scalar) -> tuple[A, ...]:
        """Convert operands to ``result_type``; shapes stay as they are."""

    @abstractmethod
    def computed(self, *values: A | Scalar) -> tuple[A, ...]:
        """Convert operands to the dtype PyTorch computes in: ``result_type``, half widened."""

    @staticmethod
    @abstractmethod
    def widened(value: A) -> A:
        """Widen a half-precision array to float32, for accumulation; others come back as is."""
