"""How far two arrays are from each other, what is in an array, and the text of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes  # noqa: F401  (registers bfloat16 and the float8 types with NumPy)
import numpy as np

TOLERANCE = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
"""dtype -> relative and absolute tolerance, those of ``torch.testing.assert_close``.

Any other dtype has to be equal.
"""


@dataclass(frozen=True, slots=True)
class Summary:
    """What is in one input.

    Attributes:
        name: how the operation's text calls it, for example ``%3``.
        minimum, maximum, mean: over the finite elements, of a complex array over their moduli;
            ``None`` where there are none.
        nonfinite: how many elements are infinite or NaN.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    minimum: float | None
    maximum: float | None
    mean: float | None
    nonfinite: int

    @staticmethod
    def of(name: str, array: np.ndarray) -> Summary:
        """Summarise ``array``, of any dtype and shape."""
        wide = _wide(array)
        numbers = np.abs(wide) if wide.dtype.kind == "c" else wide
        finite = numbers[np.isfinite(numbers)]
        minimum = maximum = mean = None
        if finite.size:
            minimum, maximum, mean = (float(f(finite)) for f in (np.min, np.max, np.mean))
        missing = int(numbers.size - finite.size)
        return Summary(name, array.dtype.name, array.shape, minimum, maximum, mean, missing)

    def __str__(self) -> str:
        head = f"{self.name}:{self.dtype}[{','.join(map(str, self.shape))}]"
        if self.minimum is None:
            return f"{head}  no finite element, {self.nonfinite} non-finite"
        of = " of the moduli" if self.dtype.startswith("complex") else ""
        numbers = f"min {self.minimum:.6g}  max {self.maximum:.6g}  mean {self.mean:.6g}"
        return f"{head}  {numbers}{of}  {self.nonfinite} non-finite"


@dataclass(frozen=True, slots=True)
class Gap:
    """Where two arrays of one shape and dtype differ beyond tolerance.

    Attributes:
        elements: how many elements differ beyond tolerance, of ``total``.
        absolute: the greatest absolute difference among these; infinite where one side alone
            is infinite or NaN.
        absolute_index: its index; ``absolute_values`` are the two elements there.
        relative: the greatest difference divided by the first array's element.
    """

    elements: int
    total: int
    absolute: float
    absolute_index: tuple[int, ...]
    absolute_values: tuple[complex, complex]
    relative: float
    relative_index: tuple[int, ...]
    relative_values: tuple[complex, complex]


def tolerances(dtype: str, rtol: float | None, atol: float | None) -> tuple[float, float]:
    """The given pair for an inexact dtype, by default that of ``TOLERANCE``."""
    if dtype not in TOLERANCE:
        return 0.0, 0.0
    return TOLERANCE[dtype] if rtol is None or atol is None else (rtol, atol)


def gap(one: np.ndarray, other: np.ndarray, rtol: float, atol: float) -> Gap | None:
    """Where ``|other - one| > atol + rtol * |one|``; ``None`` where that is nowhere.

    Equal infinities agree, and a NaN agrees with any NaN. Both arrays have one shape and dtype.
    """
    with np.errstate(all="ignore"):
        absolute = _distance(one, other)
        magnitude = np.abs(_wide(one))
        near = np.isfinite(absolute) & (absolute <= atol + rtol * magnitude)
        far = ~near & (absolute != 0)
        if not far.any():
            return None
        absolute = np.where(far, np.where(np.isnan(absolute), np.inf, absolute), 0.0)
        relative = np.where(far, absolute / magnitude, 0.0)
        # Infinite over infinite, and anything over NaN: nothing is farther apart.
        relative = np.where(np.isnan(relative), np.inf, relative)
    at, relative_at = (
        tuple(map(int, np.unravel_index(np.argmax(values), one.shape)))
        for values in (absolute, relative)
    )
    return Gap(
        elements=int(far.sum()),
        total=one.size,
        absolute=float(absolute[at]),
        absolute_index=at,
        absolute_values=(one[at].item(), other[at].item()),
        relative=float(relative[relative_at]),
        relative_index=relative_at,
        relative_values=(one[relative_at].item(), other[relative_at].item()),
    )


def _wide(array: np.ndarray) -> np.ndarray:
    """The array in float64 or complex128."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _distance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """``|one - other|`` in float64: 0 where both are equal or NaN, NaN where one of them is."""
    if one.dtype.kind in "iu":
        # Exact: the difference of 64-bit integers, modulo 2**64, is what fits into a uint64.
        wide = np.int64 if one.dtype.kind == "i" else np.uint64
        left, right = one.astype(wide), other.astype(wide)
        upper, lower = np.maximum(left, right), np.minimum(left, right)
        return (upper.astype(np.uint64) - lower.astype(np.uint64)).astype(np.float64)
    left, right = _wide(one), _wide(other)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    return np.where(same, 0.0, np.abs(left - right))


@dataclass(frozen=True, slots=True)
class Difference:
    """The first operation whose results differ, and all that is known of it.

    Attributes:
        operator: the ATen overload the program called, for example ``aten::add_.Tensor``.
        operation: its number among the trace's, from 0; ``trace`` likewise among the traces.
        text: the operation as ``fuse.explain`` prints it.
        source: the user's ``file:line``; of a backward pass, the autograd node's name.
        result: which of the operation's results, from 0.
        dtype, shape: of that result.
        tolerance: the relative and the absolute one.
        gap: how the results differ; ``None`` where a backend failed instead.
        failure: what that backend raised, else empty.
        inputs: a summary of every tensor operand, in order.
        numbers: what the operation took from the trace's varying numbers, and its seed.
    """

    backends: tuple[str, str]
    operator: str
    operation: int
    trace: int
    text: str
    source: str
    result: int
    dtype: str
    shape: tuple[int, ...]
    tolerance: tuple[float, float]
    gap: Gap | None
    failure: str
    inputs: tuple[Summary, ...]
    numbers: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"operation {self.operation} of trace {self.trace}, {self.operator}, "
        head += "differs" if self.gap else "failed"
        lines = [head, f"  {self.text}", f"  at: {self.source or 'an unknown line'}"]
        lines += self._described(self.gap) if self.gap else [f"  {self.failure}"]
        lines += [f"  input {summary}" for summary in self.inputs]
        lines += [f"  with {number}" for number in self.numbers]
        return "\n".join(lines)

    def _described(self, found: Gap) -> Sequence[str]:
        rtol, atol = self.tolerance
        spec = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        return (
            f"  result {self.result}: {spec}, {found.elements} of {found.total} elements are "
            f"farther apart than {atol:g} + {rtol:g} * |{self.backends[0]}|",
            f"  greatest absolute difference: {found.absolute:.6g} at {found.absolute_index}: "
            + self._pair(found.absolute_values),
            f"  greatest relative difference: {found.relative:.6g} at {found.relative_index}: "
            + self._pair(found.relative_values),
        )

    def _pair(self, values: tuple[complex, complex]) -> str:
        return ", ".join(
            f"{value!r} on {name}" for value, name in zip(values, self.backends, strict=True)
        )
