"""Reductions, and what else reads along dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuse.backends.padded_places import Flipped, Rolled
from fuse.families.call import Call, Results, Rule
from fuse.families.parts import (
    ONE,
    Axes,
    Axis,
    Refused,
    behind,
    broadcast,
    fixed,
    moving,
    parts_of,
    simple,
    size_of,
    slots_of,
)
from fuse.families.rules.registry import rule


def dims_of(call: Call, name: str, rank: int) -> list[int]:
    """The dimensions that an argument names, all of them where it names none."""
    dims = call.optional(name, None)
    if dims is None or dims == ():
        return list(range(rank))
    return [dim % max(rank, 1) for dim in (dims if isinstance(dims, tuple) else (dims,))]


def without(axes: Axes, dims: Sequence[int], keeps: Any) -> Axes:
    """The axes of what is reduced along ``dims``, which it ``keeps`` as ones or not."""
    if keeps:
        return tuple(ONE if dim in dims else axis for dim, axis in enumerate(axes))
    return tuple(axis for dim, axis in enumerate(axes) if dim not in dims)


def _reduces(neutral: float | str, mean: bool = False) -> Rule:
    def rule(call: Call) -> Results:
        axes = call.axes_of("self")
        dims = dims_of(call, "dim", len(axes))
        call.fill("self", neutral, dims)
        if mean:
            call.scale(0, tuple(axes[dim] for dim in dims))
        if len(call.node.slots) > 1:
            call.rank(1, axes[dims[0]] if axes else ())
        made = without(axes, dims, call.optional("keepdim", False))
        return [made] * len(call.node.slots)

    return rule


@rule("linalg_vector_norm")
def _norm(call: Call) -> Results:
    if not call.given("ord") > 0:
        raise Refused("a norm of this order counts padding")
    return _reduces(0)(call)


def _index_of(neutral: str) -> Rule:
    def rule(call: Call) -> Results:
        axes, dim = call.axes_of("self"), call.given("dim")
        call.rank(0, _all_of(axes) if dim is None else axes[dim])
        return _reduces(neutral)(call)

    return rule


def _all_of(axes: Axes) -> Axis:
    """One axis that goes over all elements."""
    return tuple(part for axis in axes for part in axis)


@rule("topk")
def _top(call: Call) -> Results:
    axes, dim = call.axes_of("self"), call.given("dim")
    _check_order(axes, dim)
    call.fill("self", "least" if call.given("largest") else "last", [dim])
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


def _check_order(axes: Axes, dim: int) -> None:
    """Raise ``Refused`` unless padding comes last among elements that are equal."""
    if axes and not behind(axes[dim]):
        raise Refused("it orders what has padding in its midst")


@rule("sort", "sort.stable")
def _sort(call: Call) -> Results:
    """Padding sorts behind all values, and rows are sorted stably."""
    axes, dim = call.axes_of("self"), call.given("dim")
    _check_order(axes, dim)
    if axes:
        call.fill("self", "least" if call.given("descending") else "last", [dim])
    return [axes] * len(call.node.slots)


@rule("cumsum", "cumprod")
def _cumulated(call: Call) -> Results:
    """Padding behind all values reaches none; what lies between them is to add nothing."""
    axes, dim = call.axes_of("self"), call.given("dim")
    if axes and not behind(axes[dim]):
        call.fill("self", int("prod" in call.node.target), [dim])
    return [axes]


@rule("flip")
def _flipped(call: Call) -> Results:
    axes = call.axes_of("self")
    dims = tuple(dim % len(axes) for dim in call.given("dims"))
    every = tuple(simple(axes[dim]) for dim in dims)
    if not all(map(behind, every)):
        raise Refused("it reverses what has padding in its midst")
    if moving(every):
        factors = tuple(size_of(axis[1:]) if axis[0].moves else 0 for axis in every)
        call.instead(Flipped(dims, factors), ["self"], slots_of(every))
    return [axes]


@rule("roll")
def _rolled(call: Call) -> Results:
    axes, shifts = call.axes_of("self"), call.given("shifts")
    dims = tuple(dim % len(axes) for dim in call.given("dims"))
    every = tuple(simple(axes[dim]) for dim in dims)
    if not dims or any(len(axis) != 1 for axis in every):
        raise Refused("it goes over a border of what has padding in its midst")
    if moving(every):
        call.instead(Rolled(dims, parts_of(every)[1], shifts), ["self"], slots_of(every))
    return [axes]


@rule("searchsorted.Tensor")
def _search(call: Call) -> Results:
    """Of a sequence that goes on with the largest number; what is behind all of it is its size."""
    sequence, axes = call.axes_of("sorted_sequence"), call.axes_of("self")
    if call.given("sorter") is not None or not behind(sequence[-1]):
        raise Refused("it is of another order")
    if len(sequence) > 1:
        broadcast([sequence[:-1], axes[:-1]])
    call.fill("sorted_sequence", "most", [-1])
    call.cap(0, sequence[-1])
    return [axes]


@rule("bucketize.Tensor")
def _bucket(call: Call) -> Results:
    call.fill("boundaries", "most")
    call.cap(0, call.axes_of("boundaries")[0])
    return [call.axes_of("self")]


@rule("isin.Tensor_Tensor", "isin.Tensor_Scalar")
def _among(call: Call) -> Results:
    """Each element by itself, among numbers that are all of them."""
    if call.has("test_elements") and moving(call.axes_of("test_elements")):
        raise Refused("it searches among numbers whose count moves")
    return [call.axes_of("elements")]


rule("sum", "sum.dim_IntList", "any", "any.dim", "any.dims", "nansum", "_is_any_true")(_reduces(0))
rule("count_nonzero", "count_nonzero.dim_IntList")(_reduces(0))
rule("prod", "prod.dim_int", "all", "all.dim", "all.dims", "_is_all_true")(_reduces(1))
rule("amax", "max", "max.dim", "logsumexp")(_reduces("least"))
rule("amin", "min", "min.dim")(_reduces("most"))
rule("mean", "mean.dim")(_reduces(0, mean=True))
rule("argmax")(_index_of("least"))
rule("argmin")(_index_of("most"))
