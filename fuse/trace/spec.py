"""Plain descriptions of tensors: what the program knows of data without holding any.

A buffer's value is a dense row-major array (its ``Layout``); a tensor is a ``View``
of it: sizes, strides and an offset, counted in elements of the view's own dtype.
Dtypes are PyTorch's names without the ``torch.`` prefix ("float32", "bfloat16").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ITEMSIZE = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex32": 4,
    "bcomplex32": 4,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}
"""Bytes an element of each dtype takes (c10/core/ScalarType.h)."""
HALF_COMPLEX = frozenset({"complex32", "bcomplex32"})
"""Dtypes that PyTorch has and no array library here."""


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements, as PyTorch gives them: size-0 dims count as 1."""
    strides = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * max(shape[dim + 1], 1)
    return tuple(strides)


def physical_shape(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of a dense tensor in their order in memory, as ``physical_shape`` in buffer.cpp."""
    if strides == contiguous_strides(shape):
        return shape
    # Dimensions of one element first: their strides say nothing.
    outermost = [math.inf if size == 1 else step for size, step in zip(shape, strides, strict=True)]
    return tuple(shape[dim] for dim in sorted(range(len(shape)), key=lambda dim: -outermost[dim]))


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor's logical shape and dtype, with no storage behind it."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Layout:
    """The dense row-major array that one buffer holds."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.numel * ITEMSIZE[self.dtype]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class View:
    """Sizes, strides and storage offset over a buffer, in elements of ``dtype``.

    ``dtype`` may differ from the buffer's (``Tensor.view(dtype)``): the bytes are
    reinterpreted, never converted.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def numel(self) -> int:
        """Number of logical elements, repeats of expanded dimensions counted."""
        return math.prod(self.shape)

    @property
    def last(self) -> int:
        """The place in memory of the last element; of a view without elements it says nothing."""
        spans = zip(self.shape, self.strides, strict=True)
        return self.offset + sum((size - 1) * stride for size, stride in spans)

    @property
    def is_block(self) -> bool:
        """Whether the elements fill one block of memory, in any order."""
        expected = 1
        for step, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size != 1:
                if step != expected:
                    return False
                expected *= max(size, 1)
        return True

    def covers(self, layout: Layout) -> bool:
        """Whether this is all of the buffer's array as it lies, of whichever shape."""
        flat = self.numel == layout.numel and self.strides == contiguous_strides(self.shape)
        return flat and self.offset == 0 and self.dtype == layout.dtype

    def is_part(self, layout: Layout) -> bool:
        """Whether this is some, but not all, elements of the buffer's array as they are."""
        return layout.dtype == self.dtype and 0 < self.numel < layout.numel

    @property
    def spec(self) -> TensorSpec:
        """The view's shape and dtype without its place in memory."""
        return TensorSpec(self.dtype, self.shape)

    def __str__(self) -> str:
        text = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        if self.offset or self.strides != contiguous_strides(self.shape):
            text += f"@{self.offset}:{','.join(map(str, self.strides))}"
        return text
