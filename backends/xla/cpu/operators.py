"""Operators that programs for the CPU leave to PyTorch's own kernels, where XLA's code is slow.

XLA's CPU compiler sorts by calling a comparison, makes a tree of a running sum, and computes some
functions number by number; ``docs/decisions.md`` has what was measured. A call is opaque to XLA, so
an operator that fuses well is not here, and neither is one of few elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from typing import Any, Final, Literal

import jax
import numpy as np
import torch

from fuse.backends.xla.cpu import kernels
from fuse.trace.functional import DROPPED, find_overload, is_out, schema_of
from fuse.trace.spec import TensorSpec

FEWEST: Final = 1 << 13
"""Elements of the largest operand: below, XLA's code costs less than a call that ends a fusion."""
_GRAIN: Final = 1 << 15
"""Elements that are worth a share of their own."""
TABLE: Final[dict[str, Literal["rows", "elements"]]] = {
    "_logcumsumexp": "rows",
    "asin": "elements",
    "atan": "elements",
    "atan2": "elements",
    "cummax": "rows",
    "cummin": "rows",
    "cumprod": "rows",
    "cumsum": "rows",
    "fmod.Scalar": "elements",
    "fmod.Tensor": "elements",
    "kthvalue": "rows",
    "logcumsumexp": "rows",
    "median.dim": "rows",
    "nanmedian.dim": "rows",
    "remainder.Scalar": "elements",
    "remainder.Tensor": "elements",
    "sort": "rows",
    "sort.stable": "rows",
    "tan": "elements",
    "topk": "rows",
}
"""By what the work of each is split among threads: the rows that it is done along, or anywhere."""
_DTYPES: Final = frozenset(
    {
        *("bool", "uint8", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    }
)
"""What ``csrc/operators.cpp`` knows."""


class _Tag(IntEnum):
    """What a number among those that say a call's arguments is followed by."""

    NONE = 0
    OPERAND = 1
    RESULT = 2
    INTEGER = 3
    FLOAT = 4
    TRUTH = 5
    INTEGERS = 6


class _Arguments:
    """A call's arguments as numbers, and the operands that these count."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.floats: list[float] = []
        self.operands: list[jax.Array] = []
        self._results = 0

    def add_result(self) -> None:
        """Add the next of the tensors that are written."""
        self.numbers += _Tag.RESULT, self._results
        self._results += 1

    def add(self, value: Any, kind: str) -> bool:
        """Add one of a schema's type; whether it can be said."""
        if value is None:
            self.numbers.append(_Tag.NONE)
        elif isinstance(value, jax.Array):
            if "Tensor" not in kind:
                return False  # a number that varies
            self.numbers += _Tag.OPERAND, len(self.operands)
            self.operands.append(value)
        elif isinstance(value, bool):
            self.numbers += _Tag.TRUTH, int(value)
        elif isinstance(value, float) or (isinstance(value, int) and kind == "float"):
            self.numbers += _Tag.FLOAT, len(self.floats)
            self.floats.append(float(value))
        elif isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            self.numbers += _Tag.INTEGER, value
        elif isinstance(value, tuple) and all(type(item) is int for item in value):
            self.numbers += _Tag.INTEGERS, len(value), *value
        else:
            return False
        return True


def results(
    target: str,
    specs: Sequence[TensorSpec],
    positional: Sequence[Any],
    keyword: Mapping[str, Any],
) -> list[jax.Array] | None:
    """What PyTorch's kernel makes; ``None``: it is to be written in XLA's terms.

    Args:
        target: an operator by its functional overload.
        specs: shapes and dtypes of its results.
        positional, keyword: its arguments, tensors as arrays; ``dtype`` is that of the result.
    """
    split = TABLE.get(target)
    if split is None or not kernels.known():
        return None
    names = (argument.name for argument in schema_of(target).arguments)
    given = {**dict(zip(names, positional, strict=False)), **keyword}
    schema = _writing(target)
    arguments = _Arguments()
    for argument in schema.arguments:
        if is_out(argument):
            arguments.add_result()
        elif not arguments.add(_value(argument, given), str(argument.type)):
            return None
    operands = arguments.operands
    if not _suits(operands, specs):
        return None
    shapes = [spec.shape for spec in specs]
    shares = _shares(split, operands[0], given)
    if split == "elements":
        if any(operand.shape != shapes[0] for operand in operands):
            return None
        operands, shapes = [operand.reshape(-1) for operand in operands], [(operands[0].size,)]
    dtypes = [spec.dtype for spec in specs]
    made = kernels.call(
        "aten_operator",
        list(map(jax.ShapeDtypeStruct, shapes, dtypes)),
        *operands,
        name=schema.name,
        overload=schema.overload_name,
        arguments=arguments.numbers,
        floats=np.array(arguments.floats),
        shares=shares,
    )
    return [one.reshape(spec.shape) for one, spec in zip(made, specs, strict=True)]


def _value(argument: torch._C.Argument, given: Mapping[str, Any]) -> Any:
    if argument.name in DROPPED or argument.name == "dtype":
        return None
    return given.get(argument.name, argument.default_value)


def _suits(operands: Sequence[jax.Array], specs: Sequence[TensorSpec]) -> bool:
    dtypes = {str(operand.dtype) for operand in operands} | {spec.dtype for spec in specs}
    return (
        max((operand.size for operand in operands), default=0) >= FEWEST
        and all(math.prod(spec.shape) for spec in specs)
        and dtypes <= _DTYPES
    )


def _shares(split: str, operand: jax.Array, given: Mapping[str, Any]) -> int:
    """Into how many parts of the first dimension the work may be split."""
    if split == "rows":
        dim = given.get("dim", -1)
        if operand.ndim < 2 or not isinstance(dim, int) or dim % operand.ndim == 0:
            return 1
    parts = operand.size if split == "elements" else operand.shape[0]
    return max(1, min(parts, operand.size // _GRAIN))


@cache
def _writing(target: str) -> torch._C.FunctionSchema:
    """The overload of an operator that writes its results to tensors that it is given."""
    wanted = _said(schema_of(target))
    packet = find_overload(target).overloadpacket
    for name in packet.overloads():
        schema: torch._C.FunctionSchema = getattr(packet, name)._schema
        if any(map(is_out, schema.arguments)) and _said(schema) == wanted:
            return schema
    raise LookupError(f"{target} has no overload that writes")


def _said(schema: torch._C.FunctionSchema) -> list[tuple[str, str]]:
    return [(one.name, str(one.type)) for one in schema.arguments if not is_out(one)]
