"""Overloads that are one function of the arrays they are given, for every backend."""

from __future__ import annotations

from typing import Final

COMPARISONS: Final = {
    name: (f"{name}.Tensor", f"{name}.Scalar") for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_OPERANDS: Final = ("Tensor", "Scalar", "Scalar_Tensor")
_SHIFTED: Final = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
BITS: Final = {
    **{name: [f"bitwise_{name}.{of}" for of in _OPERANDS] for name in ("and", "or", "xor")},
    "left": [
        *(f"bitwise_left_shift.{of}" for of in _SHIFTED),
        "__lshift__.Tensor",
        "__lshift__.Scalar",
    ],
    "right": [
        *(f"bitwise_right_shift.{of}" for of in _SHIFTED),
        "__rshift__.Tensor",
        "__rshift__.Scalar",
    ],
}
"""Of bitwise operators, and of shifts by their side."""
EXTREMES: Final = {
    "larger": ("maximum", "clamp_min", "clamp_min.Tensor"),
    "smaller": ("minimum", "clamp_max", "clamp_max.Tensor"),
    "fmax": ("fmax",),
    "fmin": ("fmin",),
}
EMPTY: Final = (
    *("empty.memory_format", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
    *("zeros", "zeros_like", "new_zeros", "zero", "zero_", "_efficientzerotensor"),
)
"""Zeros, too: memory that nobody wrote reads as zero, in every run and every mode."""
FULL: Final = ("full", "full_like", "fill.Scalar", "fill.Tensor", "fill_.Scalar", "fill_.Tensor")
RESHAPED: Final = (
    *("view", "view_copy", "_unsafe_view", "reshape", "_reshape_copy"),
    *("_reshape_alias", "_reshape_alias_copy", "unsqueeze", "unsqueeze_copy"),
    *("squeeze", "squeeze.dim", "squeeze.dims"),
    *("squeeze_copy", "squeeze_copy.dim", "squeeze_copy.dims"),
    *("alias", "alias_copy", "detach", "detach_copy"),
)
SPLIT: Final = (
    *("split.Tensor", "split.sizes", "split_with_sizes", "chunk", "unsafe_chunk"),
    *("unsafe_split.Tensor", "unsafe_split_with_sizes", "split_copy.Tensor"),
    "split_with_sizes_copy",
)
