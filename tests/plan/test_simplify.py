"""Common subexpressions, drawn: the trace before, the operations that are left, and why."""

from __future__ import annotations

from textwrap import dedent

import pytest

from fuse.plan.planner import plan
from fuse.plan.simplify import merged
from fuse.trace.borders import Borders
from tests.plan.common import draw, numbers_of, random_numbers, run_plan
from tests.trace.drawing import Drawing

TWICE = """
    c = mul(a, b)
    d = mul(a, b)
    e = add(c, d)
"""

CASES = {
    "an equal operation goes": (TWICE, "e", "a, b -> e : mul add"),
    "what is made of it is equal too": (
        """
        c = mul(a, b)
        d = mul(a, b)
        f = relu(c)
        g = relu(d)
        h = add(f, g)
        """,
        "h",
        "a, b -> h : mul relu add",
    ),
    "operands in another order are another operation": (
        """
        c = mul(a, b)
        d = mul(b, a)
        e = add(c, d)
        """,
        "e",
        "a, b -> e : mul mul add",
    ),
    "a live value is made": (TWICE, "d e", "a, b -> d, e : mul mul add"),
    "the earlier one may be live": (TWICE, "c e", "a, b -> c, e : mul add"),
    "constants are made once": (
        """
        c = ones()
        d = ones()
        e = add(a, c)
        f = add(e, d)
        """,
        "f",
        "a -> f : ones add add",
    ),
    "what was written in between is another value": (
        """
        c = relu(a)
        a2 over a = add_(a, b)
        d = relu(a2)
        e = add(c, d)
        """,
        "e",
        "a, b -> e : relu add_ relu add",
    ),
    "a write is never merged": (
        """
        c = relu(a)
        c2 over c = add_(c, b)
        d = relu(a)
        d2 over d = add_(d, b)
        e = add(c2, d2)
        """,
        "e",
        "a, b -> e : relu add_ add_ add",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_common_subexpressions(name: str) -> None:
    before, live, after = CASES[name]
    drawing = Drawing(dedent(before))
    result = plan(drawing.trace, drawing[live], (), Borders(100))
    assert draw(drawing, result) == after
    leaves = random_numbers(drawing)
    assert run_plan(result, leaves) == numbers_of(drawing.trace, leaves, drawing[live])


def test_random_operations_are_never_merged() -> None:
    text = dedent("""
        c = draw(a)
        d = draw(a)
        e = add(c, d)
    """)
    drawing = Drawing(text, random="draw")
    assert draw(drawing, plan(drawing.trace, drawing["e"], ())) == "a -> e : draw draw add"
    plain = Drawing(text)
    assert draw(plain, plan(plain.trace, plain["e"], ())) == "a -> e : draw add"


def test_operations_with_a_number_that_varies_are_never_merged() -> None:
    drawing = Drawing(dedent(TWICE), varying=[1])
    assert draw(drawing, plan(drawing.trace, drawing["e"], ())) == "a, b -> e : mul mul add"


def test_views_of_other_places_are_other_operands() -> None:
    drawing = Drawing(dedent(TWICE), sizes={"d": 8})
    assert draw(drawing, plan(drawing.trace, drawing["e"], ())) == "a, b -> e : mul mul add"


ACROSS = """
    c = relu(a)
    d = mm(c, b)
    e = relu(a)
    f = add(d, e)
"""


def test_nothing_is_merged_across_an_anchor_of_a_trace_that_is_cut() -> None:
    nodes, live = Drawing(dedent(ACROSS)).nodes, ()
    assert [node.op for node in merged(nodes, live, far=True)[0]] == ["relu", "mm", "add"]
    assert [node.op for node in merged(nodes, live, far=False)[0]] == ["relu", "mm", "relu", "add"]


def test_equal_layers_stay_equal() -> None:
    """Each layer makes its own mask: one mask for all would make the first layer another one."""
    lines, value = [], "x"
    for layer in range(6):
        lines += [f"m{layer} = ones()", f"p{layer} = mm({value}, w{layer})"]
        for number in range(14):
            made, before = f"v{layer}_{number}", f"v{layer}_{number - 1}" if number else f"p{layer}"
            lines.append(f"{made} = add({before}, m{layer})")
            value = made
    drawing = Drawing("\n".join(lines))
    result = plan(drawing.trace, drawing[value], (), Borders(20))
    shapes = {(tuple(n.op for n in c.nodes), len(c.inputs), len(c.outputs)) for c in result.chunks}
    assert len(result.chunks) >= 6 and len(shapes) <= 3
    assert not any("common" in decision for decision in result.decisions)


def test_every_merge_has_its_reason() -> None:
    lines = ["c0 = ones()", *(f"c{n} = ones()" for n in range(1, 9))]
    lines += ["s0 = add(c0, c1)", *(f"s{n} = add(s{n - 1}, c{n + 1})" for n in range(1, 8))]
    drawing = Drawing("\n".join(lines))
    decisions = plan(drawing.trace, drawing["s7"], ()).decisions
    assert decisions[0].startswith("common subexpression: ones at ")
    assert decisions[5] == "common subexpressions: 3 more"
