"""Plans as bytes: what was stored comes back, and nothing else is believed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fuse.errors import VerifyError
from fuse.plan.plan import Plan
from fuse.plan.planner import plan
from fuse.plan.stored import decode, encode
from fuse.trace.borders import Borders
from fuse.trace.node import Trace
from tests.plan.common import numbers_of, random_numbers, run_plan
from tests.plan.test_property import Case, cases
from tests.trace.drawing import Drawing

TEXT = """
    c = mul(a, b)
    d = relu(c)
    e = add(d, a)
    f = mul(e, c)
"""


def names_of(made: Plan) -> tuple[tuple[str, str], ...]:
    return tuple((f"digest {at}", f"label {at}") for at in range(len(made.chunks)))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cases(), st.integers(0, 30))
def test_a_stored_plan_comes_back(case: Case, whole: int):
    trace, live, donatable = case.drawing.trace, case.live, case.donatable
    made = plan(trace, live, donatable, Borders(whole))
    data = encode(made, names_of(made), Borders(whole))
    assert decode(data, trace, live, donatable, Borders(whole)) == (made, names_of(made))


def changed(document: Any, dice: random.Random) -> None:
    """Change one thing somewhere in a JSON document."""
    places: list[tuple[Any, Any]] = []

    def look(item: Any) -> None:
        keys = item if isinstance(item, dict) else range(len(item))
        for key in keys:
            places.append((item, key))
            if isinstance(item[key], (dict, list)):
                look(item[key])

    look(document)
    holder, key = dice.choice(places)
    other_holder, other_key = dice.choice(places)
    action = dice.randrange(6)
    if action == 0:
        del holder[key]
    elif action == 1:
        holder[key] = dice.choice([None, -1, 1.0, True, "x", [], {}, 10**30, dice.randrange(20)])
    elif action == 2:
        holder[key] = copy.deepcopy(other_holder[other_key])  # never itself
    elif action == 3 and isinstance(holder, list):
        holder.append(holder[key])
    elif action == 4 and isinstance(holder, list):
        dice.shuffle(holder)
    elif isinstance(holder[key], int):
        holder[key] += dice.choice([-2, -1, 1, 2])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cases(), st.integers(0, 12), st.integers(0, 10**6))
def test_a_changed_plan_is_refused_or_gives_the_traces_numbers(case: Case, whole: int, seed: int):
    dice = random.Random(seed)
    trace, live, donatable = case.drawing.trace, case.live, case.donatable
    made = plan(trace, live, donatable, Borders(whole))
    leaves = random_numbers(case.drawing)
    expected = numbers_of(trace, leaves, live)
    for _ in range(20):
        document = json.loads(encode(made, names_of(made), Borders(whole)))
        for _ in range(dice.randrange(1, 4)):
            changed(document, dice)
        try:
            found, _ = decode(json.dumps(document).encode(), trace, live, donatable, Borders(whole))
        except (VerifyError, ValueError):
            continue
        assert run_plan(found, leaves) == expected
        assert set(found.donated) <= set(donatable)


def first(document: Any) -> Any:
    return document["chunks"][0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.pop("live"), "is no plan"),
        (lambda d: d.update(more=1), "is no plan"),
        (lambda d: d.update(format=2), "has format 2; this version reads 1"),
        (lambda d: d.update(format=True), "format is a bool"),
        (lambda d: d.update(live=[0]), r"leaves \[0\] alive"),
        (lambda d: d.update(donated=[1]), r"it consumes \(1,\), not \[0\]"),
        (lambda d: d.update(decisions=[1]), "decisions are no texts"),
        (lambda d: d.update(chunks=d["chunks"] * 2), "made twice|before they are made"),
        (lambda d: d.update(chunks=[]), "are not made exactly once"),
        (lambda d: first(d).update(nodes=[0, 1, 2, 4]), "beyond the trace's 4"),
        (lambda d: first(d).update(nodes=[0, 1, 2, -1]), "nodes are no indices"),
        (lambda d: first(d).update(nodes=[0, 1, 2, True]), "nodes are no indices"),
        (lambda d: first(d).update(nodes=[1, 0, 2, 3]), "is no input of a chunk"),
        (lambda d: first(d).update(nodes=[0, 0, 1, 2, 3]), "made twice"),
        (lambda d: first(d).update(inputs=[0]), "is no input of a chunk"),
        (lambda d: first(d).update(inputs=[0, 1, 1]), "has an input twice"),
        (lambda d: first(d).update(inputs=[0, 99]), "%99, which the trace does not know"),
        (lambda d: first(d).update(inputs=[0, 1, 2]), r"reads \[2\] before they are made"),
        (lambda d: first(d).update(outputs=[0]), r"returns \[0\], which it does not make"),
        (lambda d: first(d).update(outputs=[]), "are not made exactly once"),
        (lambda d: first(d).update(donated=[0, 1]), r"consumes leaves \[1\] in use"),
        (lambda d: first(d).update(donated=[2]), "of 2 inputs"),
        (lambda d: first(d).update(donated=[0, 0]), "of 2 inputs"),
        (lambda d: first(d).update(executable=["x"]), "names no executable"),
    ],
)
def test_what_is_wrong_is_said(change: Callable[[Any], Any], text: str):
    drawing = Drawing(dedent(TEXT))
    made = plan(drawing.trace, drawing["f"], drawing["a"])
    data = encode(made, names_of(made), Borders())
    document = json.loads(data)
    change(document)
    with pytest.raises((VerifyError, ValueError), match=text):
        decode(json.dumps(document).encode(), drawing.trace, drawing["f"], drawing["a"], Borders())
    assert decode(data, drawing.trace, drawing["f"], drawing["a"], Borders())[0] == made


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"null", b"[" * 100_000])
def test_bytes_that_are_no_plan_are_refused(data: bytes):
    with pytest.raises(ValueError):
        decode(data, Drawing(dedent(TEXT)).trace, (), (), Borders())


def test_memory_whose_first_reader_is_dead_is_no_input():
    drawing = Drawing(dedent("x = relu(m)\ny = relu(m)"))
    trace = drawing.trace
    first_use = trace.nodes[0].operands[0]
    node = replace(trace.nodes[0], operands=(replace(first_use, initialised=False),))
    made = plan(Trace((node, trace.nodes[1]), ()), drawing["y"], ())
    assert [piece.inputs for piece in made.chunks] == [()]
    assert len(made.chunks[0].nodes) == 1
