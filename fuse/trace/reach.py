"""Which values of a number that varies one program may take: those that PyTorch would not refuse.

A known stream asks nobody. So a value outside (a probability of 2, a negative deviation) is another
call, which PyTorch's shape inference and kernels see, and refuse in their own words.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch

from fuse.trace.bind import named
from fuse.trace.functional import base_name
from fuse.trace.node import Node, NumberArg, TensorArg
from fuse.trace.scalar_range import Range, range_of, result_view

_PROBABILITY: Final = (0.0, 1.0)
_NOT_NEGATIVE: Final = (0.0, math.inf)
_POSITIVE: Final = (math.ulp(0.0), math.inf)
ACCEPTED: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "bernoulli": {"p": _PROBABILITY},
    "cauchy": {"sigma": _POSITIVE},
    "exponential": {"lambd": _POSITIVE},
    "geometric": {"p": (math.ulp(0.0), math.nextafter(1.0, 0.0))},
    "huber_loss": {"delta": _POSITIVE},
    "log_normal": {"std": _POSITIVE},
    "native_dropout": {"p": _PROBABILITY},
    "normal": {"std": _NOT_NEGATIVE},
    "normal_functional": {"std": _NOT_NEGATIVE},
    "renorm": {"maxnorm": _NOT_NEGATIVE},
    "smooth_l1_loss": {"beta": _NOT_NEGATIVE},
}
"""Operator -> argument -> the least and the largest number that its kernel accepts."""
INTERVALS: Final = {
    "random": ("from", "to"),  # randint and randint_like call it
    "uniform": ("from", "to"),
}
"""Operators that draw between two numbers, which must not cross."""
RANKS: Final = {
    "kthvalue": ("k",),
    "select_backward": ("index",),
    "select_scatter": ("index",),
}
"""Operator -> the argument that counts along ``dim``."""
_FEW = 2.0**31
"""How many integers at most an interval that moves may have: of fewer than 2**32 each is drawn from
one word."""


def reach(node: Node, place: int) -> Range | None:
    """The least and the largest number at a place, and whether infinities and NaN are among them.

    ``None`` where every number is. What converts a number has no other bounds for it: no operator
    is in the tables of both.
    """
    return range_of(node, place) or _accepted(node, place)


def outside(node: Node) -> str | None:
    """Why a number among the arguments is none that the kernel accepts, or ``None``."""
    base = base_name(node.target)
    names = (*ACCEPTED.get(base, ()), *RANKS.get(base, ()))
    given = named(node) if names else {}
    for name in names:
        argument = given.get(name)
        if isinstance(argument, NumberArg):
            found = _accepted(node, argument.place)
            if found is not None and not found[0] <= argument.number <= found[1]:
                return f"its {name} is {argument.number!r}"
    return None


def _accepted(node: Node, place: int) -> Range | None:
    base, given = base_name(node.target), named(node)
    places = {name: arg.place for name, arg in given.items() if isinstance(arg, NumberArg)}
    name = next((name for name, found in places.items() if found == place), None)
    if name is None:
        return None
    if name in ACCEPTED.get(base, ()):
        return (*ACCEPTED[base][name], False)
    for bases, bounds in _BOUNDS:
        if base in bases:
            low, high = bounds(node, name)
            return low, high, False
    return None


def _end(node: Node, name: str) -> tuple[float, float]:
    """Of an interval: its two ends move on either side of its middle as it first was."""
    low, high = INTERVALS[base_name(node.target)]
    given = named(node)
    ends = [a.number for a in (given.get(low), given.get(high)) if isinstance(a, NumberArg)]
    dtype = getattr(torch, result_view(node).dtype)
    if base_name(node.target) == "uniform":
        middle, most = sum(ends) / 2, torch.finfo(dtype).max / 2
        return (-most, middle) if name == low else (middle, most)
    if name == high and len(ends) == 1:
        ends = [0, *ends]
    if len(ends) == 1 or ends[1] - ends[0] > _FEW:
        return (float(given[name].number),) * 2  # drawn from more than one word, maybe
    middle = float(math.floor(sum(ends) / 2))
    least, most = _integers(dtype)
    if name == low:
        return max(least, middle - _FEW / 2), middle
    return (1.0 if low not in given else middle + 1), min(most, middle + _FEW / 2)


def _integers(dtype: torch.dtype) -> tuple[float, float]:
    """The least and the largest integer that every kernel takes for a result of ``dtype``."""
    if dtype == torch.bool:
        return 0.0, 1.0
    if dtype.is_floating_point:
        return -2 / torch.finfo(dtype).eps, 2 / torch.finfo(dtype).eps
    return float(torch.iinfo(dtype).min), float(torch.iinfo(dtype).max)


def _index(node: Node, name: str) -> tuple[float, float]:
    """Of an index or a rank: what the dimension has."""
    given = named(node)
    dim, first = given["dim"], next(iter(given.values()))
    shape = node.operands[first.index].view.shape if isinstance(first, TensorArg) else ()
    shape = given.get("input_sizes", shape)
    inside = -len(shape) <= dim < len(shape)
    size = float(shape[dim] if inside else not shape)  # 1 of a number, 0 of no dimension
    return (1.0, size) if name == "k" else (-size, size - 1)


def _exponent(node: Node, name: str) -> tuple[float, float]:
    """Of an exponent: integers have no negative powers."""
    whole = name == "exponent" and "int" in result_view(node).dtype
    return (0.0, math.inf) if whole else (-math.inf, math.inf)


def _divisor(node: Node, name: str) -> tuple[float, float]:
    """Of a divisor: not 0."""
    given = named(node)[name]
    positive = isinstance(given, NumberArg) and given.number > 0
    return (1.0, math.inf) if positive else (-math.inf, -1.0)


_BOUNDS: Final[tuple[tuple[frozenset[str], Callable[[Node, str], tuple[float, float]]], ...]] = (
    (frozenset(INTERVALS), _end),
    (frozenset(RANKS), _index),
    (frozenset({"pow"}), _exponent),
    (
        frozenset({"avg_pool2d", "avg_pool3d", "avg_pool2d_backward", "avg_pool3d_backward"}),
        _divisor,
    ),
)
