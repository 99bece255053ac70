"""Indices, joins, slices' gradients, and what makes arrays."""

from __future__ import annotations

from fuse.backends import padding
from fuse.backends.padded_places import Bordered
from fuse.backends.padded_views import Laid
from fuse.families.call import Call, Results
from fuse.families.lenses import lens_of
from fuse.families.parts import (
    ONE,
    Refused,
    behind,
    broadcast,
    fixed,
    moving,
    parts_of,
    room_of,
    shape_of,
    simple,
    size_of,
    slots_of,
)
from fuse.families.rules.registry import made_axes, rule
from fuse.trace.spec import View, contiguous_strides


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
    size, word = size_of(made[dim]), call.word("start")
    if word is not None:
        if call.given("step") != 1 or len(made[dim]) != 1:
            raise Refused("a place that varies, of elements that do not lie together")
        call.fill("grad_output", 0, [dim])
        slots = slots_of(made[dim : dim + 1])
        shifted = padding.Shifted(dim, shape_of(axes), None if slots else size)
        call.instead(shifted, ["grad_output"], [word, *slots])
        return [axes]
    start, _, step = slice(call.given("start"), None, call.given("step")).indices(size)
    if step == 1:
        call.fill("grad_output", 0, [dim])
        starts = tuple(-start if at == dim else 0 for at in range(len(grad)))
        program = padding.Moved(shape_of(grad), starts, shape_of(axes), shape_of(axes))
        call.instead(program, ["grad_output"], ())
        return [axes]
    strides = contiguous_strides(tuple(map(size_of, axes)))
    steps = tuple(step * one if at == dim else one for at, one in enumerate(strides))
    view = View("bool", tuple(map(size_of, grad)), steps, start * strides[dim])
    lens, slots = lens_of(view, axes, grad, False)
    call.instead(Laid(lens, shape_of(grad)), ["grad_output"], slots)
    return [axes]


@rule("select_backward")
def _select_backward(call: Call) -> Results:
    grad, made = call.axes_of("grad_output"), made_axes(call)
    dim = call.given("dim") % (len(grad) + 1)
    axes = (*grad[:dim], made[dim], *grad[dim:])
    if not moving([made[dim]]):
        call.replace("input_sizes", shape_of(axes))
        return [axes]
    word, (size,) = call.word("index"), slots_of(made[dim : dim + 1])
    index = call.given("index") if word is None else None
    program = padding.Placed(dim, shape_of(axes), index)
    call.instead(program, ["grad_output"], [size] if word is None else [word, size])
    return [axes]


@rule("constant_pad_nd")
def _bordered(call: Call) -> Results:
    """Along the one dimension of those that it widens whose size moves, or along none."""
    axes, made, pads = call.axes_of("self"), made_axes(call), call.given("pad")
    number = call.given("value")
    wide = {len(axes) - 1 - at // 2: pads[at : at + 2] for at in range(0, len(pads), 2)}
    dims = [dim for dim, pad in wide.items() if any(pad)]
    axes = tuple(made[dim] if dim in dims else axis for dim, axis in enumerate(axes))
    if not moving([*(call.axes_of("self")[dim] for dim in dims), *(made[dim] for dim in dims)]):
        return [axes]
    (dim, *more), (axis, *_) = dims, [call.axes_of("self")[dim] for dim in dims]
    if more or not behind(axis):
        raise Refused("it widens several dimensions, and the size of one moves")
    program = Bordered(dim, parts_of((axis,))[1], -wide[dim][0], room_of(axes[dim]), number)
    call.instead(program, ["self"], slots_of((axis,)))
    return [axes]


@rule("repeat")
def _repeated(call: Call) -> Results:
    axes, repeats = call.axes_of("self"), call.given("repeats")
    wide = (*[ONE] * (len(repeats) - len(axes)), *axes)
    pairs = zip(repeats, wide, strict=True)
    return [tuple(axis if count == 1 else (*fixed(count), *axis) for count, axis in pairs)]


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
)
def _keeps(call: Call) -> Results:
    return [call.axes_of("self")] * len(call.node.slots)
