"""What a rule may ask about the operation it defines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuse.trace.spec import TensorSpec

_WIDE = {"float16": "float32", "bfloat16": "float32"}


@dataclass(frozen=True)
class RuleContext:
    """Facts about one operation: its results, its promoted dtype, its randomness.

    Attributes:
        out: shape and dtype of every tensor result, flattened, in schema order; an
            undefined result has no entry.
        result_type: PyTorch's promoted dtype over all tensor and Scalar operands
            (``torch.result_type`` generalised to n operands).
        seed, offset: integers below 2**64 for a random operator, else ``None``.
    """

    out: tuple[TensorSpec, ...]
    result_type: str
    seed: int | None = None
    offset: int | None = None

    def promoted(self, *values: Any) -> tuple[np.ndarray, ...]:
        """Convert operands to ``result_type``; shapes stay as they are."""
        return tuple(convert(value, self.result_type) for value in values)

    def computed(self, *values: Any) -> tuple[np.ndarray, ...]:
        """Convert operands to the dtype PyTorch computes in: ``result_type``, half widened."""
        wide = _WIDE.get(self.result_type, self.result_type)
        return tuple(convert(value, wide) for value in values)

    @staticmethod
    def widened(value: np.ndarray) -> np.ndarray:
        """Widen a half-precision array to float32, for accumulation; leave others alone."""
        return np.asarray(value).astype(_WIDE.get(value.dtype.name, value.dtype), copy=False)


def convert(value: Any, dtype: str) -> np.ndarray:
    """An array or number as an array of ``dtype``; complex to real takes the real part.

    A Python integer outside a fixed-width integer type's range wraps around, as in C.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = np.array(value, np.uint64 if value >= 2**63 else np.int64)
    array = np.asarray(value)
    if np.iscomplexobj(array) and not dtype.startswith("complex"):
        if dtype == "bool":
            return array != 0
        array = array.real
    return array.astype(dtype, copy=False)
