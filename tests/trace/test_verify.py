"""Every invariant of a trace, broken once: the text names what is wrong and shows where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuse.errors import FuseError, VerifyError
from fuse.trace.node import Leaf, Trace
from fuse.trace.verify import verify
from tests.trace.drawing import Drawing


def sound() -> Drawing:
    return Drawing("c = mul(a, b)\nd over a = add_(a, c)\ne = relu(d)")


def broken(**changes: object) -> Trace:
    return replace(sound().trace, **changes)


def with_node(index: int, **changes: object) -> Trace:
    nodes = list(sound().trace.nodes)
    nodes[index] = replace(nodes[index], **changes)
    return broken(nodes=tuple(nodes))


def test_a_sound_trace_is_returned():
    drawing = sound()
    assert verify(drawing.trace) is drawing.trace


def test_memory_nothing_was_written_to_needs_no_leaf():
    node = sound().trace.nodes[0]
    operands = tuple(replace(operand, initialised=False) for operand in node.operands)
    verify(Trace((replace(node, operands=operands),), ()))


CASES = {
    "a leaf twice": (
        lambda: broken(leaves=sound().trace.leaves + sound().trace.leaves[:1]),
        "leaf %0 appears twice",
    ),
    "a value from nowhere": (lambda: broken(leaves=()), "%0 is read before it is made"),
    "a later value": (
        lambda: broken(nodes=tuple(reversed(sound().trace.nodes))),
        "is read before it is made",
    ),
    "a value made twice": (
        lambda: broken(nodes=sound().trace.nodes[:1] * 2),
        "%2 is made twice",
    ),
    "a leaf made again": (
        lambda: broken(leaves=(*sound().trace.leaves, Leaf(2, sound().trace.leaves[0].layout))),
        "%2 is made twice",
    ),
    "a result without a place": (lambda: with_node(0, slots=()), "do not fill the outputs"),
    "a place too many": (lambda: with_node(0, slots=(0, 1)), "do not fill the outputs"),
    "a slot outside": (lambda: with_node(0, dynamic=((0, 0),)), "slot 0 is outside 0 scalars"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_broken_trace_is_refused(name: str):
    make, text = CASES[name]
    with pytest.raises(VerifyError, match=text) as caught:
        verify(make())
    assert isinstance(caught.value, FuseError)
