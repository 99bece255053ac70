"""The rules by functional overload, and those of operators that treat every element alike.

A rule fills what its operator reads along (zeros in a sum, negative infinity in a maximum), and
returns the axes of each result. What treats every position on its own needs nothing: padding makes
padding. An operator without a rule is refused where a size of its call moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch

from fuse.families.call import Call, Results, Rule
from fuse.families.parts import Axes, Refused, broadcast, marked, moving, shape_of
from fuse.trace.functional import MARK, base_name, find_overload

RULES: Final[dict[str, Rule]] = {}
_DRAWING: Final = {
    *("bernoulli", "native_dropout", "uniform", "normal", "exponential", "rand", "randn"),
    *("randint", "rand_like", "randn_like", "randint_like"),
}
"""Operators that draw for each element by its place among all."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for these functional overloads."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def rule_of(target: str) -> Rule | None:
    """The rule of an overload; ``None`` where padding may do anything to it."""
    base, dot, rest = target.partition(MARK)[0].partition(".")
    plain = f"{base.removesuffix('_')}{dot}{rest}"
    found = RULES.get(target) or RULES.get(plain)
    if found is not None:
        return found
    overload = find_overload(plain) or find_overload(target)
    tags = () if overload is None else overload.tags
    if torch.Tag.nondeterministic_seeded in tags:
        return _draws if base_name(target) in _DRAWING else None
    return by_element if torch.Tag.pointwise in tags else None


@rule("copy", "floor_divide", "floor_divide.Scalar", "masked_fill.Tensor", "log_sigmoid_forward")
def by_element(call: Call) -> Results:
    """Every element by itself: padding makes padding."""
    return [broadcast(call.known())] * len(call.node.slots)


def _draws(call: Call) -> Results:
    axes = broadcast(call.axes) if call.axes else made_axes(call)
    if call.axes and any(axes != one for one in call.axes if moving(one)):
        raise Refused("it draws for operands of two shapes")
    if moving(axes):
        call.replace("size", (math.prod(shape_of(axes)),))
        call.flat()
    return [axes] * len(call.node.slots)


def made_axes(call: Call) -> Axes:
    """The axes of what a call makes out of nothing, or writes: as they are marked."""
    part = call.node.parts()[0]
    pairs = zip(part.view.shape, call.made[0], strict=True)
    return tuple(marked(size, mark) for size, mark in pairs)
