"""What a rule may ask about the operation it emits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from fuse.trace.spec import TensorSpec

_WIDE = {"float16": "float32", "bfloat16": "float32", "complex32": "complex64"}


@dataclass(frozen=True)
class RuleContext:
    """Facts about one operation: its results, its promoted dtype, its platform, its randomness.

    Attributes:
        out: shape and dtype of every tensor result, flattened, in schema order; an
            undefined result has no entry.
        result_type: PyTorch's promoted dtype over all tensor and Scalar operands
            (``torch.result_type`` generalised to n operands).
        platform: "cpu", "gpu" or "tpu".
        seed, offset: 0-d uint64 arrays for a random operator, else ``None``.
        contiguous: whether each tensor operand, in order, is row-major; empty where that is
            not known (inside a decomposition).
        orders: the dimensions of each operand as they lie in memory, the outermost first, by
            the array's ``id``; empty where that is not known.
    """

    out: tuple[TensorSpec, ...]
    result_type: str
    platform: str = "cpu"
    seed: Any = None
    offset: Any = None
    contiguous: tuple[bool, ...] = ()
    orders: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def order(self, value: jax.Array) -> tuple[int, ...]:
        """How an operand lies in memory; an array made from one counts as row-major."""
        return self.orders.get(id(value), tuple(range(value.ndim)))

    def promoted(self, *values: Any) -> tuple[jax.Array, ...]:
        """Convert operands to ``result_type``; shapes stay as they are."""
        return tuple(jnp.asarray(value).astype(self.result_type) for value in values)

    def computed(self, *values: Any) -> tuple[jax.Array, ...]:
        """Convert operands to the dtype PyTorch computes in: ``result_type``, half widened."""
        wide = _WIDE.get(self.result_type, self.result_type)
        return tuple(jnp.asarray(value).astype(wide) for value in values)

    @staticmethod
    def widened(value: jax.Array) -> jax.Array:
        """Widen a half-precision array to float32, for accumulation; others come back as is."""
        wide = _WIDE.get(str(value.dtype))
        return value if wide is None else value.astype(wide)
