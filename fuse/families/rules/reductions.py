"""Reductions, and what else reads along dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fuse.families.call import Call, Results, Rule
from fuse.families.parts import ONE, Axes, Refused, broadcast, fixed, moving, room_of, size_of
from fuse.families.rules.registry import rule


def _dims(call: Call, name: str, rank: int) -> list[int]:
    dims = call.optional(name, None)
    if dims is None or dims == ():
        return list(range(rank))
    return [dim % max(rank, 1) for dim in (dims if isinstance(dims, tuple) else (dims,))]


def _without(axes: Axes, dims: Sequence[int], keeps: Any) -> Axes:
    if keeps:
        return tuple(ONE if dim in dims else axis for dim, axis in enumerate(axes))
    return tuple(axis for dim, axis in enumerate(axes) if dim not in dims)


def _reduces(neutral: float | str, mean: bool = False) -> Rule:
    def rule(call: Call) -> Results:
        axes = call.axes_of("self")
        dims = _dims(call, "dim", len(axes))
        call.fill("self", neutral, dims)
        reduced = [axes[dim] for dim in dims]
        if mean and moving(reduced):
            call.scale(0, math.prod(map(room_of, reduced)) / math.prod(map(size_of, reduced)))
        made = _without(axes, dims, call.optional("keepdim", False))
        return [made] * len(call.node.slots)

    return rule


@rule("linalg_vector_norm")
def _norm(call: Call) -> Results:
    if not call.given("ord") > 0:
        raise Refused("a norm of this order counts padding")
    return _reduces(0)(call)


def _index_of(neutral: str) -> Rule:
    def rule(call: Call) -> Results:
        if call.given("dim") is None and len(call.axes_of("self")) > 1:
            raise Refused("a position among all elements depends on their number")
        return _reduces(neutral)(call)

    return rule


@rule("topk")
def _top(call: Call) -> Results:
    axes, dim = call.axes_of("self"), call.given("dim")
    call.fill("self", "least" if call.given("largest") else "most", [dim])
    made = list(axes)
    made[dim] = fixed(call.given("k"))
    return [tuple(made)] * 2


@rule("_softmax", "_log_softmax", "_safe_softmax")
def _softmax(call: Call) -> Results:
    call.fill("self", "least", [call.given("dim")])
    return [call.axes_of("self")]


@rule("_softmax_backward_data", "_log_softmax_backward_data")
def _softmax_backward(call: Call) -> Results:
    dim = call.given("dim")
    call.fill("grad_output", 0, [dim])
    if "log" not in call.node.target:
        call.fill("output", 0, [dim])
    return [broadcast([call.axes_of("grad_output"), call.axes_of("output")])]


@rule("sort", "sort.stable")
def _along_nothing(call: Call) -> Results:
    """Along one dimension, which must not move."""
    axes = call.axes_of("self")
    if axes and moving([axes[call.given("dim")]]):
        raise Refused("it goes along a size that moves")
    return [axes] * len(call.node.slots)


rule("sum", "sum.dim_IntList", "any", "any.dim", "any.dims", "nansum")(_reduces(0))
rule("prod", "prod.dim_int", "all", "all.dim", "all.dims")(_reduces(1))
rule("amax", "max", "max.dim", "logsumexp")(_reduces("least"))
rule("amin", "min", "min.dim")(_reduces("most"))
rule("mean", "mean.dim")(_reduces(0, mean=True))
rule("argmax")(_index_of("least"))
rule("argmin")(_index_of("most"))
