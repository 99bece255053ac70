"""PyTorch's type promotion over any number of operands (c10/core/ScalarType, result_type)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import torch

from fuse.trace.bind import named
from fuse.trace.functional import attributes_of
from fuse.trace.node import Arg, HostArg, Node, NumberArg, TensorArg


@cache
def _category(dtype: str) -> int:
    torch_dtype = getattr(torch, dtype)
    if torch_dtype.is_complex:
        return 3
    if torch_dtype.is_floating_point:
        return 2
    return 0 if torch_dtype == torch.bool else 1


@cache
def _join(first: str, second: str) -> str:
    if "float8" in first + second:
        return "float32"  # PyTorch promotes no 8-bit floats: what takes several converts by itself
    joined = torch.promote_types(getattr(torch, first), getattr(torch, second))
    return str(joined).removeprefix("torch.")


@cache
def _complex(dtype: str) -> str:
    """The complex dtype of a float's width; of bfloat16 bcomplex32 from PyTorch 2.15 on."""
    return str(getattr(torch, dtype).to_complex()).removeprefix("torch.")


def _default(dtype: str) -> str:
    """The dtype a wrapped number takes part with: the default one of its category."""
    standard = str(torch.get_default_dtype()).removeprefix("torch.")
    if _category(dtype) == 2:
        return standard
    if _category(dtype) == 3:
        return "complex128" if standard == "float64" else "complex64"
    return "int64" if dtype == "uint64" else dtype  # a number past int64 wraps around


def result_type(operands: Iterable[tuple[str, int, bool]]) -> str | None:
    """Promoted dtype of operands given as ``(dtype, rank, is a wrapped number)``.

    Tensors with dimensions outrank 0-d tensors, which outrank wrapped numbers, unless the
    lower one's category (bool, integer, float, complex) is higher. ``None`` without operands.
    """
    ranks: list[str | None] = [None, None, None]
    for dtype, dims, wrapped in operands:
        level = 2 if wrapped else (0 if dims else 1)
        dtype = _default(dtype) if wrapped else dtype
        known = ranks[level]
        ranks[level] = dtype if known is None else _join(known, dtype)
    result: str | None = None
    for dtype_of_level in ranks:
        if dtype_of_level is None:
            continue
        if result is None:
            result = dtype_of_level
        elif _category(dtype_of_level) > _category(result):
            # A complex number lends a float its category, not its width (c10 combine_categories).
            widens = _category(dtype_of_level) < 3 or _category(result) < 2
            result = _join(result, dtype_of_level) if widens else _complex(result)
    return result


def promoted_operands(node: Node) -> list[tuple[str, int, bool]]:
    """The tensor and Scalar arguments of a node, as ``result_type`` takes them."""
    found: list[tuple[str, int, bool]] = []

    def visit(value: Arg) -> None:
        if isinstance(value, TensorArg):
            view = node.operands[value.index].view
            found.append((view.dtype, len(view.shape), False))
        elif isinstance(value, HostArg):
            found.append((value.dtype, 0, value.wrapped))
        elif isinstance(value, NumberArg):
            found.append(("float64" if isinstance(value.number, float) else "int64", 0, True))
        elif isinstance(value, bool):
            pass  # an attribute (keepdim, ...): bool Scalars never raise the category
        elif isinstance(value, complex):
            found.append(("complex128", 0, True))
        elif isinstance(value, tuple):
            for item in value:
                visit(item)

    attributes = attributes_of(node.target)
    for name, value in named(node).items():
        if name not in attributes:
            visit(value)
    return found
