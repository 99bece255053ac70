"""Ranges of scalars that PyTorch's kernels convert to a result's dtype; others are refused.

``fill_(300)`` on bytes is an error, and so is the -1e9 that masks half precision: XLA would wrap
the one and make the other infinite. What an operator promotes first (``x + 300``) wraps there, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import torch

from fuse.trace.bind import named
from fuse.trace.functional import base_name
from fuse.trace.node import HostArg, Node, NumberArg, Output, Write
from fuse.trace.operators import operator
from fuse.trace.spec import View
from fuse.versions import floats_truncate

Range = tuple[float, float, bool]
"""The smallest and the largest number that fits, and whether infinities and NaN do."""

HALVES: Final = ("bfloat16", "float16")


def unfit(node: Node) -> str | None:
    """Why a number among the arguments does not fit, or ``None``."""
    for argument, dtype in _converted(node):
        if not isinstance(argument, (HostArg, NumberArg)) or isinstance(argument.number, complex):
            continue
        found = _range(dtype, isinstance(argument.number, float), _wraps(node))
        if found is not None and not _within(found, argument.number):
            return f"its number does not fit {dtype}"
    return None


def range_of(node: Node, place: int) -> Range | None:
    """Which numbers fit at a place of a number; ``None`` where all do."""
    for argument, dtype in _converted(node):
        if isinstance(argument, (HostArg, NumberArg)) and argument.place == place:
            return _range(dtype, isinstance(argument.number, float), _wraps(node))
    return None


def _wraps(node: Node) -> bool:
    """Whether integers may wrap around zero where the dtype has no sign."""
    return not operator(node.target).unwrapped


def _converted(node: Node) -> Iterator[tuple[object, str]]:
    """Arguments that are converted, and the dtypes that they get."""
    special = operator(node.target)
    checked, widened = special.converted, special.widened
    if not checked and not widened or _is_one_half(node):
        return
    dtype = result_view(node).dtype
    wide = "float32" if dtype in HALVES else dtype
    given = named(node)
    for names, to in ((checked, dtype), (widened, wide)):
        yield from ((given[name], to) for name in names if name in given)


def result_view(node: Node) -> View:
    """The view of a call's first result, made or written."""
    made: tuple[Output | Write, ...] = (*node.outputs, *node.writes)
    return made[0].view


def _is_one_half(node: Node) -> bool:
    """A fill of one element of half precision: PyTorch rounds there (ATen/ScalarOps.cpp).

    So a number beside a tensor, as in ``where(mask, x, -1e9)``, becomes infinite.
    """
    view = result_view(node)
    return base_name(node.target) == "fill" and view.dtype in HALVES and view.numel == 1


def _within(found: Range, number: float) -> bool:
    low, high, special = found
    return low <= number <= high or (special and not math.isfinite(number))


def _range(name: str, floating: bool, wraps: bool) -> Range | None:
    """Which floating-point numbers, or which integers, convert to a dtype.

    As ``c10::overflows`` has it (c10/util/TypeCast.h): integers that wrap do so around zero once
    where the dtype has no sign.
    """
    dtype = getattr(torch, name)
    dtype = dtype.to_real() if dtype.is_complex else dtype
    if dtype in (torch.bool, torch.float64):
        return None
    if dtype.is_floating_point:
        most = torch.finfo(dtype).max
        return -most, most, True
    limits = torch.iinfo(dtype)
    if not floating and limits.max >= torch.iinfo(torch.int64).max:
        return None
    least = -limits.max if wraps and limits.min == 0 and not floating else limits.min
    most = float(limits.max)
    if floating and floats_truncate():
        most = math.nextafter(float(limits.max + 1), 0.0)
    return float(least), most, False
