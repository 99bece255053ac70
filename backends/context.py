"""What a rule of any backend may ask about the operation it computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from fuse.trace.decompose import Step
from fuse.trace.evaluate import Scalars
from fuse.trace.node import Node, Output, Write
from fuse.trace.promote import promoted_operands, result_type
from fuse.trace.spec import TensorSpec, contiguous_strides


@dataclass(frozen=True)
class Operation:
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
