"""Convolutions: of the examples of a batch, and over places whose number moves."""

from __future__ import annotations

from collections.abc import Sequence

from fuse.families.call import Call, Results
from fuse.families.parts import (
    Axes,
    Part,
    Refused,
    broadcast,
    fixed,
    marked,
    moving,
    room_of,
    shape_of,
    simple,
    size_of,
)
from fuse.families.rules.registry import rule


@rule("convolution")
def _convolution(call: Call) -> Results:
    axes, places = call.axes_of("input"), _places(call)
    call.fill("input", 0, range(2, len(axes)))
    (part,) = call.node.parts()
    sizes = zip(part.view.shape[1:], call.made[0][1:], strict=True)
    made = (axes[0], *(marked(size, mark) for size, mark in sizes))
    if places:
        call.wider(0, (*made[:2], *places), made)
    return [made]


@rule("convolution_backward")
def _convolution_backward(call: Call) -> Results:
    axes, places = call.axes_of("input"), _places(call)
    broadcast([axes[:1], call.axes_of("grad_output")[:1]])
    call.fill("grad_output", 0)
    call.fill("input", 0)
    if places:
        call.fit("grad_output", (*call.axes_of("grad_output")[:2], *places))
    weight = call.axes_of("weight")
    return [axes, weight, weight[1:2] if call.given("transposed") else weight[:1]]


def _places(call: Call) -> Axes:
    """Where their number moves: the places that a convolution of the bucket's size makes.

    Those that are values read zeros behind the true size, as they do at it.
    """
    axes, weight = call.axes_of("input"), call.axes_of("weight")
    if moving((axes[1], *weight)):
        raise Refused("its channels move")
    if not moving(axes[2:]):
        return ()
    if call.given("transposed") or any(len(simple(axis)) != 1 for axis in axes[2:]):
        raise Refused("it goes over a size that moves")
    count = len(axes) - 2
    steps, arounds, gaps = (
        _each(call.given(name), count) for name in ("stride", "padding", "dilation")
    )
    found = []
    for axis, kernel, step, around, gap in zip(
        axes[2:], shape_of(weight[2:]), steps, arounds, gaps, strict=True
    ):
        reach = gap * (kernel - 1) + 1
        size, room = ((n + 2 * around - reach) // step + 1 for n in (size_of(axis), room_of(axis)))
        slot = simple(axis)[0].slot
        found.append(fixed(size) if slot is None else (Part(size, room, slot),))
    return tuple(found)


def _each(numbers: Sequence[int], count: int) -> tuple[int, ...]:
    return tuple(numbers) * count if len(numbers) == 1 else tuple(numbers)
