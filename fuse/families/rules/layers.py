"""Products, normalisation, losses and recurrent cells."""

from __future__ import annotations

from collections.abc import Sequence

from fuse.families.call import Call, Results, Rule
from fuse.families.parts import (
    ONE,
    Axes,
    Axis,
    Refused,
    broadcast,
    fixed,
    moving,
    room_of,
    same,
)
from fuse.families.rules.registry import rule


def _product(left: str, right: str) -> Rule:
    def rule(call: Call) -> Results:
        a, b = call.axes_of(left), call.axes_of(right)
        inner = b[-2] if len(b) > 1 else b[-1]
        if not same(a[-1], inner):
            raise Refused("its operands have sizes that move in different ways")
        call.fill(left, 0, [-1])
        call.fill(right, 0, [-2 if len(b) > 1 else -1])
        batch = broadcast([a[:-2], b[:-2]]) if len(b) > 1 else ()
        made = (*batch, *a[:-1][-1:], *(b[-1:] if len(b) > 1 else ()))
        return [broadcast([made, *added(call)])]

    def added(call: Call) -> list[Axes]:
        return [] if left == "self" else [call.axes_of("self")]

    return rule


@rule("linear")
def _linear(call: Call) -> Results:
    a, weight = call.axes_of("input"), call.axes_of("weight")
    if moving(weight):
        raise Refused("its weight has a size that moves")
    return [(*a[:-1], *weight[:-1])]


def _normalised(call: Call) -> tuple[Axes, Axes]:
    axes, count = call.axes_of("input"), len(call.given("normalized_shape"))
    if moving(axes[len(axes) - count :]):
        raise Refused("it normalises over a size that moves")
    return axes, (*axes[: len(axes) - count], *[ONE] * count)


@rule("native_layer_norm", "_fused_rms_norm")
def _layer_norm(call: Call) -> Results:
    axes, each = _normalised(call)
    return [axes, each, each]


@rule("native_layer_norm_backward", "_fused_rms_norm_backward")
def _layer_norm_backward(call: Call) -> Results:
    axes, _ = _normalised(call)
    names = {argument.name for argument in call.schema} & {"grad_out", "input", "mean", "rstd"}
    broadcast([call.axes_of(name) for name in names])
    for name in sorted(names):
        call.fill(name, 0)
    weight = axes[len(axes) - len(call.given("normalized_shape")) :]
    return [axes, weight, weight]


@rule("native_group_norm")
def _group_norm(call: Call) -> Results:
    axes = _leading(call, "input", 1)
    call.replace("N", room_of(axes[0]))
    groups = (axes[0], fixed(call.given("group")))
    return [axes, groups, groups]


@rule("native_group_norm_backward")
def _group_norm_backward(call: Call) -> Results:
    axes = _leading(call, "input", 1)
    broadcast([call.axes_of(name)[:1] for name in ("grad_out", "input", "mean", "rstd")])
    call.replace("N", room_of(axes[0]))
    for name in ("grad_out", "input", "mean", "rstd"):
        call.fill(name, 0)
    return [axes, (axes[1],), (axes[1],)]


@rule("native_batch_norm")
def _batch_norm(call: Call) -> Results:
    if call.optional("training", False):
        raise Refused("its statistics count padding")
    axes = call.axes_of("input")
    if moving(axes[1:2]):
        raise Refused("its channels move")
    rest: list[Axes | None] = []
    for slot in call.node.slots[1:]:
        shape = () if slot is None else call.node.parts()[slot].view.shape
        rest.append(tuple(map(fixed, shape)))
    return [axes, *rest]


def _loss(neutral: float) -> Rule:
    def rule(call: Call) -> Results:
        one, other = call.axes_of("self"), call.axes_of("target")
        axes, reduction = broadcast([one, other]), call.given("reduction")
        if reduction == 0:
            return [axes]
        if one != other:
            raise Refused("its operands are of two shapes")
        if call.optional("weight", None) is not None:
            raise Refused("what it weighs has padding")
        call.fill("self", neutral)
        call.fill("target", neutral)
        if reduction == 1:
            call.scale(0, axes)
        return [()]

    return rule


@rule(
    *("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward"),
    "binary_cross_entropy_backward",
)
def _loss_backward(call: Call) -> Results:
    axes = broadcast([call.axes_of(name) for name in ("grad_output", "self", "target")])
    if call.given("reduction") == 1:
        call.scale(0, axes)
    return [axes]


@rule("nll_loss_forward", "nll_loss2d_forward")
def _nll(call: Call) -> Results:
    axes = call.axes_of("self")
    if moving(axes[1:2] if len(axes) > 1 else axes):
        raise Refused("the number of its classes moves")
    if len(axes) > 1:
        broadcast([(axes[0], *axes[2:]), call.axes_of("target")])
    call.fill("target", call.given("ignore_index"))
    whole = call.axes_of("target") if call.given("reduction") == 0 else ()
    return [whole, ()]


@rule("nll_loss_backward", "nll_loss2d_backward")
def _nll_backward(call: Call) -> Results:
    _nll(call)
    if call.given("reduction") == 0:
        call.fill("grad_output", 0)
    return [call.axes_of("self")]


@rule("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell")
def _cell(call: Call) -> Results:
    """A recurrent cell: each example by itself."""
    kept = _examples(call)
    return [_rest(kept, part.view.shape) for part in call.node.parts()]


@rule("_thnn_fused_lstm_cell_backward_impl", "_thnn_fused_gru_cell_backward")
def _cell_backward(call: Call) -> Results:
    for at in range(len(call.axes)):
        call.fill(at, 0)
    kept = _examples(call)
    return [
        _rest(kept if len(part.view.shape) > 1 else (), part.view.shape)
        for part in call.node.parts()
    ]


def _examples(call: Call) -> Axes:
    """The first axis of all operands but biases, which have no other that moves."""
    return broadcast(
        [_leading(call, at, 1)[:1] for at, one in enumerate(call.axes) if len(one) > 1]
    )


def _leading(call: Call, name: str | int, count: int) -> Axes:
    """The axes of an operand of which only the first ``count`` may move."""
    axes = call.axes_of(name) if isinstance(name, str) else call.axes[name]
    if moving(axes[count:]):
        raise Refused("it goes over a size that moves")
    return axes


def _rest(kept: Axes, shape: Sequence[int]) -> Axes:
    rest: tuple[Axis, ...] = tuple(map(fixed, shape[len(kept) :]))
    return (*kept, *rest)


for _name, _left, _right in (
    ("mm", "self", "mat2"),
    ("bmm", "self", "mat2"),
    ("addmm", "mat1", "mat2"),
    ("baddbmm", "batch1", "batch2"),
    ("mv", "self", "vec"),
    ("dot", "self", "tensor"),
):
    rule(_name)(_product(_left, _right))
rule("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")(_loss(0))
