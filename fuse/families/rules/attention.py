"""Attention: no query sees a key behind their number."""

from __future__ import annotations

from fuse.backends import padding
from fuse.families.call import Call, Results
from fuse.families.parts import (
    Axes,
    Refused,
    broadcast,
    moving,
    room_of,
    same,
    shape_of,
    simple,
    size_of,
)
from fuse.families.rules.registry import rule
from fuse.trace.spec import View


def _keys(call: Call) -> None:
    """Have no query see the keys behind their size."""
    query, key = call.axes_of("query"), call.axes_of("key")
    if call.given("dropout_p"):
        raise Refused("what it draws depends on its shape")
    for name in ("query", "key", "value"):
        axes = call.axes_of(name)
        heads = moving([axes[-3], query[-3]]) and not same(axes[-3], query[-3])
        if len(axes) != 4 or moving(axes[-1:]) or heads:
            raise Refused("its heads move")
        call.fill(name, 0, [-2])
    value = call.axes_of("value")
    broadcast([query[:1], key[:1], value[:1]])
    broadcast([key[-2:-1], value[-2:-1]])
    bias = call.operand("attn_bias")
    if bias is not None:
        axes = call.axes[bias]
        broadcast([query[:3], axes[:-1]])
        if moving([key[-2]]) and not same(axes[-1], key[-2]):
            raise Refused("its mask is not of the keys' size")
        call.fill(bias, 0, [-2])
        call.fill(bias, "least", [-1])
    elif moving([key[-2]]):
        if not call.given("is_causal"):
            _add_mask(call, (query[0], query[1], query[2], key[2]))
        elif size_of(query[-2]) > size_of(key[-2]):
            raise Refused("queries are behind the last key")


def _add_mask(call: Call, axes: Axes) -> None:
    parts = simple(axes[-1])
    if len(parts) != 1:
        raise Refused("its keys are of several sizes")
    dtype = call.node.operands[call.operand("query") or 0].view.dtype
    view = View(dtype, shape_of(axes), (0, 0, 0, 1))
    call.add_operand("attn_bias", padding.Border(parts[0].room, dtype), parts[0], view)


@rule("_scaled_dot_product_fused_attention_overrideable")
def _attention(call: Call) -> Results:
    _keys(call)
    query, value = call.axes_of("query"), call.axes_of("value")
    each = query[:3]
    nothing = [None if number is None else () for number in call.node.slots[2:]]
    return [(*query[:3], value[3]), each, *nothing]


@rule("_scaled_dot_product_fused_attention_overrideable_backward")
def _attention_backward(call: Call) -> Results:
    if call.given("grad_input_mask")[3]:
        raise Refused("its mask has a gradient")
    _keys(call)
    query = call.axes_of("query")[:3]
    broadcast([query, call.axes_of("grad_out")[:3], call.axes_of("out")[:3]])
    broadcast([query, call.axes_of("logsumexp")])
    for name in ("grad_out", "out", "logsumexp"):
        call.fill(name, 0)
    call.replace("max_q", room_of(call.axes_of("query")[-2]))
    call.replace("max_k", room_of(call.axes_of("key")[-2]))
    mask = call.recorded("attn_bias")
    return [call.axes_of("query"), call.axes_of("key"), call.axes_of("value"), mask]
