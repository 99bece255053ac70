"""Indices, joins, slices' gradients, and what makes arrays."""

from __future__ import annotations

from fuse.backends import padding
from fuse.families.call import Call, Results
from fuse.families.parts import (
    Axes,
    Refused,
    broadcast,
    fixed,
    moving,
    room_of,
    same,
    shape_of,
    simple,
    size_of,
)
from fuse.families.rules.registry import made_axes, rule


@rule("embedding")
def _embedding(call: Call) -> Results:
    weight = call.axes_of("weight")
    if moving(weight):
        raise Refused("its table has a size that moves")
    call.fill("indices", 0)
    return [(*call.axes_of("indices"), weight[-1])]


@rule("embedding_dense_backward")
def _embedding_backward(call: Call) -> Results:
    if call.given("scale_grad_by_freq"):
        raise Refused("it counts indices")
    grad = call.axes_of("grad_output")
    broadcast([grad[:-1], call.axes_of("indices")])
    call.fill("grad_output", 0)
    call.fill("indices", 0)
    return [(fixed(call.given("num_weights")), grad[-1])]


def _agree_beside(axes: Axes, others: Axes, dim: int) -> None:
    """Raise ``Refused`` unless all dimensions but one are padded alike."""
    for at, pair in enumerate(zip(axes, others, strict=True)):
        if at != dim and moving(pair) and not same(*pair):
            raise Refused("its operands have sizes that move in different ways")


@rule("gather")
def _gather(call: Call) -> Results:
    axes, index = call.axes_of("self"), call.axes_of("index")
    dim = call.given("dim") % max(len(axes), 1)
    _agree_beside(axes, index, dim)
    call.fill("index", 0)
    return [index]


@rule("scatter_add")
def _scatter_add(call: Call) -> Results:
    axes, index, src = (call.axes_of(name) for name in ("self", "index", "src"))
    dim = call.given("dim") % max(len(axes), 1)
    broadcast([index, src])
    _agree_beside(axes, index, dim)
    call.fill("index", 0)
    call.fill("src", 0)
    return [axes]


@rule("index_add")
def _index_add(call: Call) -> Results:
    axes, source = call.axes_of("self"), call.axes_of("source")
    dim = call.given("dim") % max(len(axes), 1)
    broadcast([source[dim : dim + 1], call.axes_of("index")])
    _agree_beside(axes, source, dim)
    call.fill("index", 0)
    call.fill("source", 0)
    return [axes]


@rule("index_select")
def _index_select(call: Call) -> Results:
    axes, index = call.axes_of("self"), call.axes_of("index")
    dim = call.given("dim") % max(len(axes), 1)
    call.fill("index", 0)
    return [(*axes[:dim], *index, *axes[dim + 1 :])]


@rule("index.Tensor")
def _index(call: Call) -> Results:
    axes, indices = call.axes_of("self"), call.given("indices")
    given = [(at, one.index) for at, one in enumerate(indices) if one is not None]
    if len(given) != 1:
        raise Refused("it has several indices")
    (at, operand), *_ = given
    if call.node.operands[operand].view.dtype in ("bool", "uint8"):
        raise Refused("it takes what a mask says")
    call.fill(operand, 0)
    return [(*axes[:at], *call.axes[operand], *axes[at + 1 :])]


@rule("cat")
def _cat(call: Call) -> Results:
    every = [one.index for one in call.given("tensors")]
    axes = [call.axes[at] for at in every]
    if any(len(one) != len(axes[0]) for one in axes):
        raise Refused("a tensor has no elements")
    dim = call.given("dim") % len(axes[0])
    if moving([one[dim] for one in axes]):
        return [call.joined(dim, every)]
    rest = broadcast([tuple(a for at, a in enumerate(one) if at != dim) for one in axes])
    return [(*rest[:dim], fixed(sum(size_of(one[dim]) for one in axes)), *rest[dim:])]


@rule("slice_backward")
def _slice_backward(call: Call) -> Results:
    grad, made = call.axes_of("grad_output"), made_axes(call)
    dim = call.given("dim") % len(grad)
    axes = tuple(made[dim] if at == dim else axis for at, axis in enumerate(grad))
    if not moving([grad[dim], made[dim]]):
        call.replace("input_sizes", shape_of(axes))
        return [axes]
    if call.given("step") != 1 or call.given("start") < 0:
        raise Refused("it begins anywhere in a size that moves")
    call.fill("grad_output", 0, [dim])
    starts = tuple(-call.given("start") if at == dim else 0 for at in range(len(grad)))
    rooms = shape_of(grad)
    program = padding.Moved(rooms, starts, shape_of(axes), shape_of(axes))
    call.instead(program, ["grad_output"], ())
    return [axes]


@rule("select_backward")
def _select_backward(call: Call) -> Results:
    grad, made = call.axes_of("grad_output"), made_axes(call)
    dim = call.given("dim") % (len(grad) + 1)
    axes = (*grad[:dim], made[dim], *grad[dim:])
    if not moving([made[dim]]):
        call.replace("input_sizes", shape_of(axes))
        return [axes]
    program = padding.Placed(dim, shape_of(axes), call.given("index"))
    call.instead(program, ["grad_output"], [made[dim][0].slot or 0])
    return [axes]


@rule("stack")
def _stack(call: Call) -> Results:
    axes = [call.axes[one.index] for one in call.given("tensors")]
    made = broadcast(axes)
    dim = call.given("dim") % (len(made) + 1)
    return [(*made[:dim], fixed(len(axes)), *made[dim:])]


@rule("full", "zeros", "ones", "empty.memory_format", "new_zeros", "new_ones", "new_full")
def _factory(call: Call) -> Results:
    axes = made_axes(call)
    call.replace("size", shape_of(axes))
    return [axes]


@rule("arange", "arange.start", "arange.start_step")
def _counts_up(call: Call) -> Results:
    axes = made_axes(call)
    start, step = call.optional("start", 0), call.optional("step", 1)
    call.given("end")
    call.replace("end", start + step * room_of(axes[0]))
    return [axes]


@rule("tril", "triu")
def _triangle(call: Call) -> Results:
    axes = call.axes_of("self")
    if any(len(simple(axis)) != 1 for axis in axes[-2:]):
        raise Refused("an axis is of several sizes")
    return [axes]


@rule(
    "_to_copy",
    "fill.Scalar",
    "fill.Tensor",
    "alias",
    "detach",
    "lift_fresh_copy",
    "full_like",
    "zeros_like",
    "ones_like",
    "zero",
    "empty_like",
    "cumsum",
)
def _keeps(call: Call) -> Results:
    return [call.axes_of("self")] * len(call.node.slots)
