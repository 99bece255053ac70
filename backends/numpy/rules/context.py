"""What a rule may ask about the operation it defines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fuse.backends.context import Operation, Scalar
from fuse.versions import FLOAT8_MOST, float8_saturates

Value = np.ndarray | Scalar
"""An operand: a tensor, or a number in its place."""
_MOST = 2**63 - 1
_WIDE = {"float16": "float32", "bfloat16": "float32"}


@dataclass(frozen=True)
class RuleContext(Operation[np.ndarray]):
    """Facts about one operation, and the conversions that they ask for."""

    def promoted(self, *values: Value) -> tuple[np.ndarray, ...]:
        """Convert operands to ``result_type``; shapes stay as they are."""
        return tuple(convert(value, self.result_type) for value in values)

    def computed(self, *values: Value) -> tuple[np.ndarray, ...]:
        """Convert operands to the dtype PyTorch computes in: ``result_type``, half widened."""
        wide = _WIDE.get(self.result_type, self.result_type)
        return tuple(convert(value, wide) for value in values)

    @staticmethod
    def widened(value: np.ndarray) -> np.ndarray:
        """Widen a half-precision array to float32, for accumulation; leave others alone."""
        return np.asarray(value).astype(_WIDE.get(value.dtype.name, value.dtype), copy=False)


def convert(value: Value, dtype: str) -> np.ndarray:
    """An array or number as ``Tensor.to(dtype)`` converts it.

    Complex to real drops the imaginary part; anything nonzero, NaN too, is True; integers wrap
    around; a float becomes an integer by truncation, and out of range as x86 does it.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = np.array(value) if value > _MOST else np.array(value % 2**64, np.uint64).view("i8")
    array = np.asarray(value)
    if array.dtype == dtype:
        return array
    if dtype == "bool":
        return np.not_equal(array, np.zeros((), array.dtype))
    if array.dtype.kind == "c" and not dtype.startswith("complex"):
        array = np.real(array)
    if "int" in dtype and "float" in array.dtype.name:
        return _truncated(array, dtype)
    if dtype == "float8_e4m3fn" and float8_saturates():
        array = np.clip(array.astype(np.float32), -FLOAT8_MOST, FLOAT8_MOST)
    converted: np.ndarray = array.astype(dtype)
    return converted


def _truncated(array: np.ndarray, dtype: str) -> np.ndarray:
    """A float array as integers.

    A float outside the range of int32 or int64 (and NaN) converts to the smallest integer on
    the x86 CPUs PyTorch runs on ("integer indefinite" of CVTTSS2SI); narrower integers take the
    low bits of that conversion.
    """
    wide = array.astype(_WIDE.get(array.dtype.name, array.dtype))
    if dtype == "uint64":
        signed = _truncated(wide, "int64").astype(np.uint64)
        return np.where(np.abs(wide) < 2.0**63, signed, wide.astype(np.uint64))
    target = "int64" if dtype in ("int64", "uint32", "uint8") else "int32"
    inside = np.abs(wide) < 2.0 ** (np.iinfo(target).bits - 1)
    whole = np.where(inside, wide, 0).astype(target)
    return np.where(inside, whole, np.iinfo(target).min).astype(dtype)
