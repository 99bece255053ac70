"""Indices: reading, adding and writing at places that arrays of positions name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuse.backends.data_checks import IndexCheck, WeightsCheck
from fuse.backends.functions import program_of
from fuse.families.call import Call, Results
from fuse.families.parts import (
    Axes,
    Refused,
    broadcast,
    moving,
    parts_of,
    room_of,
    same,
    slots_of,
)
from fuse.families.rules.registry import rule
from fuse.trace.node import CHECK


def _agree_beside(axes: Axes, others: Axes, dim: int) -> None:
    """Raise ``Refused`` unless all dimensions but one are padded alike."""
    for at, pair in enumerate(zip(axes, others, strict=True)):
        if at != dim and moving(pair) and not same(*pair):
            raise Refused("its operands have sizes that move in different ways")


def _along(call: Call, wraps: bool = False, longer: bool = False) -> tuple[Axes, int]:
    """The axes of what is indexed along one dimension, and that; its ``index`` names places then.

    ``wraps`` and ``longer`` as of ``Call.locate``.
    """
    axes = call.axes_of("self")
    dim = call.given("dim") % max(len(axes), 1)
    if axes:
        call.locate("index", axes[dim], wraps, longer)
    return axes, dim


@rule("gather")
def _gather(call: Call) -> Results:
    index, (axes, dim) = call.axes_of("index"), _along(call)
    _agree_beside(axes, index, dim)
    return [index]


@rule("scatter_add")
def _scatter_add(call: Call) -> Results:
    index, (axes, dim) = call.axes_of("index"), _along(call)
    broadcast([index, call.axes_of("src")])
    _agree_beside(axes, index, dim)
    call.fill("src", 0)
    return [axes]


@rule("index_add")
def _index_add(call: Call) -> Results:
    source, (axes, dim) = call.axes_of("source"), _along(call)
    broadcast([source[dim : dim + 1], call.axes_of("index")])
    _agree_beside(axes, source, dim)
    call.fill("source", 0)
    return [axes]


@rule("index_select")
def _index_select(call: Call) -> Results:
    axes, dim = _along(call)
    return [(*axes[:dim], *call.axes_of("index"), *axes[dim + 1 :])]


def _indices(call: Call) -> tuple[list[tuple[int, int]], Axes]:
    """The dimensions that have an index, with its operand; and the axes of all indices."""
    given = [(at, one.index) for at, one in enumerate(call.given("indices")) if one is not None]
    if any(call.node.operands[at].view.dtype in ("bool", "uint8") for _, at in given):
        raise Refused("it takes what a mask says")
    return given, broadcast([call.axes[at] for _, at in given])


def _rest_of(axes: Axes, given: Sequence[tuple[int, int]], index: Axes) -> Axes:
    """The axes of what indices take: in place of their dimensions, or first if these are apart."""
    dims = [dim for dim, _ in given]
    first = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    rest = tuple(axis for dim, axis in enumerate(axes) if dim not in dims)
    return (*rest[:first], *index, *rest[first:])


@rule("index.Tensor")
def _index(call: Call) -> Results:
    axes, (given, index) = call.axes_of("self"), _indices(call)
    for dim, operand in given:
        call.locate(operand, axes[dim], wraps=True)
    return [_rest_of(axes, given, index)]


@rule("index_put", "_index_put_impl")
def _index_put(call: Call) -> Results:
    """What padding of an index names is a place behind all others, and dropped."""
    axes, (given, index) = call.axes_of("self"), _indices(call)
    broadcast([_rest_of(axes, given, index), call.axes_of("values")])
    for dim, operand in given:
        call.locate(operand, axes[dim], wraps=True, longer=moving(index))
    if moving(index):
        _send_behind(call, given)
    return [axes]


def _send_behind(call: Call, indices: Sequence[tuple[int, str | int]]) -> None:
    """Give ``self`` one more place along dimensions, which the padding of their indices names."""
    axes = wider = call.axes_of("self")
    if any(len(axis) != 1 for axis in axes):
        raise Refused("an axis is of several sizes")
    for dim, _ in indices:
        (part,) = axes[dim]
        wider = (*wider[:dim], (part._replace(room=part.room + 1),), *wider[dim + 1 :])
    call.fit("self", wider)
    call.wider(0, wider, axes)
    for dim, index in indices:
        call.fill(index, room_of(axes[dim]))


@rule("scatter.src", "scatter.value", "scatter_reduce.two", "scatter.reduce")
def _scatter(call: Call) -> Results:
    index, (axes, dim) = call.axes_of("index"), _along(call)
    if call.has("src"):
        broadcast([index, call.axes_of("src")])
    _agree_beside(axes, index, dim)
    if axes and moving(index):
        _send_behind(call, [(dim, "index")])
    return [axes]


@rule("index_copy", "index_fill.int_Scalar", "index_fill.int_Tensor")
def _index_copy(call: Call) -> Results:
    index = call.axes_of("index")
    axes, dim = _along(call, wraps=True, longer=moving(index))
    if call.has("source"):
        source = call.axes_of("source")
        broadcast([source[dim : dim + 1], index])
        _agree_beside(axes, source, dim)
    if axes and moving(index):
        _send_behind(call, [(dim, "index")])
    return [axes]


@rule(CHECK)
def _check(call: Call) -> Results:
    """Padding is 0, which is a place and a probability; sizes that move are given."""
    program = program_of(call.node.target)
    call.fill("values", 0)
    if isinstance(program, IndexCheck):
        indexed = call.axes_of("indexed")
        axes = tuple(indexed[dim] for dim in program.dims)
        call.instead(replace(program, sizes=parts_of(axes)[1]), ("state", "values"), slots_of(axes))
    elif isinstance(program, WeightsCheck):
        raise Refused("its rows are none in padding")
    return [call.axes_of("state")]
