"""Views that no slices of an array with room make: by the places of their elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fuse.backends.padded_views import Lens
from fuse.families.parts import Axes, Refused, parts_of, shape_of, slots_of
from fuse.trace.spec import View, contiguous_strides

MOST = 2**31 - 1
"""Elements whose places the programs count."""


def lens_of(view: View, axes: Axes, made: Axes, varies: bool) -> tuple[Lens, tuple[int, ...]]:
    """The lens of a recorded view over an array of these axes, and the slots of its sizes.

    ``made`` are the view's own axes, each of one part; ``varies`` says that its offset is a number
    of the trace's. Raises ``Refused``.
    """
    parts = [part for axis in axes for part in axis]
    true = contiguous_strides(tuple(part.size for part in parts))
    elements = math.prod(part.size for part in parts)
    if not parts or not elements or math.prod(shape_of(axes)) > MOST:
        raise Refused("a view of an array that has no elements, or too many")
    if not varies and view.numel and view.last >= elements:
        raise Refused("a view reaches behind its array")
    if any(len(axis) != 1 for axis in made):
        raise Refused("an axis is of several sizes")
    dims = [dim for dim, size in enumerate(view.shape) if size != 1]
    order = tuple(sorted(dims, key=lambda dim: (-view.strides[dim], dim)))
    steps: list[tuple[int, ...]] = [() for _ in view.shape]
    inner = 1
    for dim in reversed(order):
        digits = _digits(view.strides[dim], true)
        steps[dim] = () if sum(digits) > 1 and view.strides[dim] == inner else digits
        inner = view.strides[dim] * view.shape[dim]
    start = () if varies else _digits(view.offset, true)
    lens = Lens(*parts_of(axes), parts_of(made)[1], tuple(steps), order, start)
    return lens, (*slots_of(axes), *slots_of(made))


def _digits(number: int, strides: Sequence[int]) -> tuple[int, ...]:
    """A number of elements as so many steps along each part: those stay when sizes move."""
    found = []
    for step in strides:
        found.append(number // step if step else 0)
        number -= found[-1] * step
    return tuple(found)


def check_apart(view: View) -> None:
    """Raise ``Refused`` where two elements of the view may be in one place."""
    reach = 0
    for step, size in sorted(zip(view.strides, view.shape, strict=True)):
        if size > 1 and step <= reach:
            raise Refused("elements that it writes share memory")
        reach += (size - 1) * step if size > 1 else 0
