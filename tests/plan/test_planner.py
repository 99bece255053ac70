"""The planner on small drawings: the trace before, the plan after, structure, counts, numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuse.errors import VerifyError
from fuse.plan.liveness import bytes_alive, last_reads
from fuse.plan.plan import Plan
from fuse.plan.planner import plan
from fuse.plan.repeats import Repeat, find_repeats, smallest_period
from fuse.plan.scalars import compact_scalars
from fuse.plan.segment import LONGEST, segments
from tests.trace.drawing import Drawing


def planned(drawing: Drawing, live: str, donatable: str = "", whole: int = 200) -> Plan:
    return plan(drawing.trace, drawing[live], drawing[donatable], whole)


def draw(drawing: Drawing, result: Plan) -> str:
    """A plan as text: ``a, b! -> c : operators`` a chunk; ``!`` marks what is donated."""
    lines = []
    for chunk in result.chunks:
        inputs = [
            drawing.name(leaf.value) + ("!" if position in chunk.donated else "")
            for position, leaf in enumerate(chunk.inputs)
        ]
        outputs = [drawing.name(value) for value in chunk.outputs]
        operators = " ".join(node.op for node in chunk.nodes)
        lines.append(f"{', '.join(inputs)} -> {', '.join(outputs)} : {operators}")
    return "\n".join(lines)


CHAIN = """
    c = mul(a, b)
    d = relu(c)
    e = add(d, a)
"""

CASES = {
    "one chunk": (CHAIN, "e", "", "a, b -> e : mul relu add"),
    "what stays alive is returned": (CHAIN, "c e", "", "a, b -> c, e : mul relu add"),
    "dead code goes": (CHAIN, "c", "", "a, b -> c : mul"),
    "dead code in the middle goes": (
        """
        c = mul(a, b)
        x = relu(b)
        y = add(x, z)
        d = relu(c)
        """,
        "d",
        "",
        "a, b -> d : mul relu",
    ),
    "a leaf that nothing else holds is donated": (CHAIN, "e", "b", "a, b! -> e : mul relu add"),
    "one output takes one donation": (CHAIN, "e", "a b", "a!, b -> e : mul relu add"),
    "two outputs take two": (CHAIN, "d e", "a b", "a!, b! -> d, e : mul relu add"),
    "what dead code read is not donated": (CHAIN, "c", "a b", "a!, b -> c : mul"),
    "a write is one more value": (
        """
        w2 over w = add_(w, g)
        y = mul(w2, x)
        """,
        "w2 y",
        "w",
        "w!, g, x -> w2, y : add_ mul",
    ),
    "an overwritten value that nothing reads is dead": (
        """
        w2 over w = add_(w, g)
        w3 over w2 = fill_(w2)
        """,
        "w3",
        "",
        "w, g -> w3 : add_ fill_",
    ),
    "nothing alive is nothing to do": (CHAIN, "", "a", " ->  : "),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan(name: str):
    before, live, donatable, after = CASES[name]
    drawing = Drawing(dedent(before))
    assert draw(drawing, planned(drawing, live, donatable)) == after


def test_a_donation_needs_an_output_of_its_size():
    drawing = Drawing("c = take(a, b)", sizes={"a": 8, "b": 4, "c": 4})
    assert draw(drawing, planned(drawing, "c", "a")) == "a, b -> c : take"
    assert draw(drawing, planned(drawing, "c", "a b")) == "a, b! -> c : take"


def test_every_decision_has_its_reason():
    drawing = Drawing(dedent(CHAIN))
    decisions = planned(drawing, "c", "b").decisions
    assert decisions[0] == "dead code: 2 operations removed, nothing reads them"
    assert decisions[1].startswith("chunk 0: the whole trace: 1 operations are within 200")
    assert decisions[2].startswith("donation: 1 inputs reused")


def test_the_trace_is_kept_and_live_values_are_in_order():
    drawing = Drawing(dedent(CHAIN))
    result = planned(drawing, "e c")
    assert result.trace is drawing.trace
    assert result.live == drawing["c e"]


LAYERS = 6
LAYER = ["mm", "relu", "add", "tanh"] * 3


def layered() -> Drawing:
    lines, value = [], "x"
    for layer in range(LAYERS):
        for number, operator in enumerate(LAYER):
            made = f"v{layer}_{number}"
            operands = f"{value}, w{layer}" if operator in ("mm", "add") else value
            lines.append(f"{made} = {operator}({operands})")
            value = made
    return Drawing("\n".join(lines))


def test_equal_layers_are_equal_chunks():
    drawing = layered()
    last = f"v{LAYERS - 1}_{len(LAYER) - 1}"
    result = planned(drawing, last, whole=20)
    operators = [tuple(node.op for node in chunk.nodes) for chunk in result.chunks]
    assert sum(len(chunk) for chunk in operators) == LAYERS * len(LAYER)
    assert len(set(operators)) == 1 and len(operators) > 1
    assert all(len(chunk.outputs) == 1 for chunk in result.chunks)
    # The value that goes from block to block is let go as it goes.
    assert all(len(chunk.donated) == 1 for chunk in result.chunks[1:])
    assert result.chunks[0].donated == ()
    assert all("block" in line for line in result.decisions if line.startswith("chunk"))


def test_a_short_trace_is_not_cut():
    drawing = layered()
    assert len(planned(drawing, "v5_11", whole=len(LAYER) * LAYERS).chunks) == 1


def test_a_plan_that_breaks_an_invariant_is_refused():
    drawing = Drawing(dedent(CHAIN))
    with pytest.raises(VerifyError, match="are not made exactly once"):
        plan(drawing.trace, (drawing.names["a"],), ())
    with pytest.raises(VerifyError, match="is made twice"):
        twice = replace(drawing.trace, nodes=drawing.trace.nodes + drawing.trace.nodes[:1])
        plan(twice, drawing["e"], ())


# ---- the parts ------------------------------------------------------------------------------


def test_liveness():
    drawing = Drawing(dedent(CHAIN))
    last = last_reads(drawing.nodes, drawing["e"])
    assert {drawing.name(value): at for value, at in last.items()} == {
        "a": 2,
        "b": 0,
        "c": 1,
        "d": 2,
        "e": 3,
    }
    alive = bytes_alive(drawing.nodes, drawing["e"], drawing.trace.layouts())
    assert alive == [16, 16, 16]


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        ("abcdefgh" * 3, [Repeat(0, 8, 3)]),
        ("xyz" + "abcdefgh" * 2 + "q", [Repeat(3, 8, 2)]),
        ("ab" * 16, [Repeat(0, 8, 4)]),
        ("abcdefghijklmnop", []),
        ("abcdefgh" * 2 + "ABCDEFGHI" * 2, [Repeat(0, 8, 2), Repeat(16, 9, 2)]),
        ("", []),
    ],
)
def test_repeats(tokens: str, found: list[Repeat]):
    assert find_repeats([ord(token) for token in tokens]) == found


@pytest.mark.parametrize(("tokens", "period"), [("abab", 2), ("aaa", 1), ("abc", None), ("", None)])
def test_the_smallest_period(tokens: str, period: int | None):
    assert smallest_period([ord(token) for token in tokens]) == period


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 3), max_size=300), st.integers(0, 100))
def test_segments_cover_the_trace_once(tokens: list[int], whole: int):
    pieces = segments(tokens, [0] * len(tokens), [], whole)
    stops = [0, *(piece.stop for piece in pieces)]
    assert [piece.start for piece in pieces] == stops[:-1] and stops[-1] == len(tokens)
    assert all(piece.reason for piece in pieces)


def test_a_long_stretch_is_cut_where_little_is_alive():
    total = LONGEST * 2
    alive = [10] * total
    alive[LONGEST - 30] = 1
    first, *_ = segments(list(range(total)), alive, [])
    assert first.stop == LONGEST - 29 and "1 bytes alive" in first.reason


def test_scalars_are_packed_for_each_chunk():
    drawing = Drawing(dedent(CHAIN))
    nodes = (
        replace(drawing.nodes[0], dynamic=((0, 5),), random=None),
        replace(drawing.nodes[1], dynamic=((0, 9), (1, 2)), random=7),
    )
    compacted, slots = compact_scalars(nodes)
    assert slots == (5, 9, 2, 7, 8)
    assert [node.dynamic for node in compacted] == [((0, 0),), ((0, 1), (1, 2))]
    assert [node.random for node in compacted] == [None, 3]


# ---- numbers ----------------------------------------------------------------------------------

OPERATORS = {"mul": lambda a, b: a * b % 101, "add": lambda a, b: a + b, "relu": lambda a: a + 7}


def run_nodes(nodes: Sequence, values: dict[int, int]) -> None:
    for node in nodes:
        arguments = [values[operand.value] for operand in node.operands]
        for made in node.results():
            values[made] = OPERATORS[node.target](*arguments)


def run_plan(result: Plan, leaves: dict[int, int]) -> dict[int, int]:
    """Chunk by chunk, each seeing its inputs only; what is donated is gone afterwards."""
    known = dict(leaves)
    for chunk in result.chunks:
        values = {leaf.value: known[leaf.value] for leaf in chunk.inputs}
        run_nodes(chunk.nodes, values)
        for position in chunk.donated:
            del known[chunk.inputs[position].value]
        known |= {value: values[value] for value in chunk.outputs}
    return {value: known[value] for value in result.live}


@st.composite
def drawings(draw_from: st.DrawFn) -> tuple[Drawing, list[str], list[str]]:
    names = ["a", "b", "c"]
    lines, over = [], set()
    for number in range(draw_from(st.integers(1, 40))):
        operator = draw_from(st.sampled_from(sorted(OPERATORS)))
        usable = [name for name in names if name not in over]
        count = 1 if operator == "relu" else 2
        operands = [draw_from(st.sampled_from(usable)) for _ in range(count)]
        write = draw_from(st.booleans())
        made = f"v{number}"
        if write:
            over.add(operands[0])
            lines.append(f"{made} over {operands[0]} = {operator}_({', '.join(operands)})")
        else:
            lines.append(f"{made} = {operator}({', '.join(operands)})")
        names.append(made)
    drawing = Drawing("\n".join(lines))
    visible = [name for name in names if name not in over and name in drawing.names]
    made = [name for name in visible if name.startswith("v")]
    live = draw_from(st.lists(st.sampled_from(made), unique=True))
    leaves = [name for name in "abc" if name in drawing.names]
    donatable = draw_from(st.lists(st.sampled_from(leaves), unique=True))
    return drawing, live, donatable


@settings(max_examples=150, deadline=None, derandomize=True)
@given(drawings(), st.integers(0, 30))
def test_a_random_plan_gives_the_traces_numbers(
    case: tuple[Drawing, list[str], list[str]], whole: int
):
    drawing, live, donatable = case
    leaves = {leaf.value: 3 + leaf.value for leaf in drawing.trace.leaves}
    expected = dict(leaves)
    run_nodes(drawing.trace.nodes, expected)
    result = planned(drawing, " ".join(live), " ".join(donatable), whole)
    assert run_plan(result, leaves) == {value: expected[value] for value in drawing[" ".join(live)]}
    assert set(result.donated) <= set(drawing[" ".join(donatable)])
