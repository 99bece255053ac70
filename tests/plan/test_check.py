"""Every invariant of a plan, broken once: it is refused, and the text names what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fuse.errors import VerifyError
from fuse.plan.check import check_plan
from fuse.plan.plan import Plan, PlannedChunk
from fuse.trace.node import Leaf
from tests.trace.drawing import Drawing

DRAWING = Drawing("c = mul(a, b)\nd = relu(c)\ne = add(d, b)", varying=(0,))
A, B, C, D, E = (DRAWING.names[name] for name in "abcde")
LEAF = {value: Leaf(value, DRAWING.trace.leaves[0].layout) for value in (A, B, C, D)}


def sound() -> Plan:
    """Two chunks: the first consumes ``a``, the second what the first made."""
    nodes = DRAWING.trace.nodes
    first = PlannedChunk(nodes[:2], (LEAF[A], LEAF[B]), (D,), (0,), (0,))
    second = PlannedChunk(nodes[2:], (LEAF[D], LEAF[B]), (E,), (0,), ())
    return Plan(DRAWING.trace, (E,), (A,), (first, second), ())


def with_chunk(at: int, **changes: Any) -> Plan:
    plan = sound()
    chunks = list(plan.chunks)
    chunks[at] = replace(chunks[at], **changes)
    return replace(plan, chunks=tuple(chunks))


def swapped() -> Plan:
    return replace(sound(), chunks=sound().chunks[::-1])


CASES: dict[str, tuple[Callable[[], Plan], str]] = {
    "an input twice": (
        lambda: with_chunk(0, inputs=(LEAF[A], LEAF[A], LEAF[B])),
        "a chunk has an input twice, in",
    ),
    "an input is missing": (
        lambda: with_chunk(0, inputs=(LEAF[A],), donated=()),
        f"%{B} is no input of a chunk with",
    ),
    "an output of nobody": (
        lambda: with_chunk(0, outputs=(D, E)),
        rf"a chunk returns \[{E}\], which it does not make once",
    ),
    "an output twice": (
        lambda: with_chunk(0, outputs=(D, D)),
        rf"a chunk returns \({D}, {D}\), which it does not make once",
    ),
    "donated twice": (
        lambda: with_chunk(0, donated=(0, 0)),
        r"donated positions \(0, 0\) of 2 inputs",
    ),
    "donated past the last": (
        lambda: with_chunk(0, donated=(2,)),
        r"donated positions \(2,\) of 2 inputs",
    ),
    "donated before the first": (
        lambda: with_chunk(0, donated=(-1,)),
        r"donated positions \(-1,\) of 2 inputs",
    ),
    "a slot past the last": (
        lambda: with_chunk(0, scalars=(1,)),
        r"slots \(1,\) are outside 1 scalars",
    ),
    "a slot before the first": (
        lambda: with_chunk(0, scalars=(-1,)),
        r"slots \(-1,\) are outside 1 scalars",
    ),
    "too early": (swapped, rf"a chunk reads \[{D}\] before they are made"),
    "run again": (
        lambda: replace(sound(), chunks=(*sound().chunks, sound().chunks[1])),
        "before they are made",  # the first time consumed it
    ),
    "made again": (
        lambda: replace(
            sound(), chunks=(*with_chunk(1, donated=()).chunks, with_chunk(1, donated=()).chunks[1])
        ),
        rf"values \[{E}\] are made twice",
    ),
    "made twice within": (
        lambda: with_chunk(1, nodes=DRAWING.trace.nodes[2:] * 2),
        "are made twice",
    ),
    "what is live is consumed": (
        lambda: replace(sound(), live=(D, E)),
        rf"a chunk consumes live values \[{D}\]",
    ),
    "what is in use is consumed": (
        lambda: replace(with_chunk(1, donated=(0, 1)), donated=(A, B)),
        rf"a chunk consumes leaves \[{B}\] in use",
    ),
    "live is not made": (
        lambda: replace(sound(), live=(C, E)),
        rf"live values \[{C}\] are not made exactly once",
    ),
    "a leaf is live": (
        lambda: replace(with_chunk(0, donated=()), live=(A, E), donated=()),
        rf"live values \[{A}\] are not made exactly once",
    ),
    "live values out of order": (
        lambda: replace(with_chunk(1, donated=()), live=(E, D)),
        "are not made exactly once",
    ),
    "consumed in silence": (
        lambda: replace(sound(), donated=()),
        rf"the plan says that it consumes \(\), not \[{A}\]",
    ),
}


def test_a_sound_plan_is_returned() -> None:
    plan = sound()
    assert check_plan(plan, (A,)) is plan


@pytest.mark.parametrize("name", CASES)
def test_a_broken_plan_is_refused(name: str) -> None:
    make, text = CASES[name]
    with pytest.raises(VerifyError, match=text):
        check_plan(make(), (A,))
