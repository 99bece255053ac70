"""What changes from trace to trace of one form is set apart from what stays the same."""

from __future__ import annotations

import pytest

from fuse.plan import changing
from fuse.plan.changing import Forms, set_apart, stretches
from fuse.plan.plan import Plan
from fuse.plan.planner import plan
from tests.plan.common import draw, numbers_of, random_numbers, run_plan
from tests.trace.drawing import Drawing


def generation(length: int, layers: int = 9) -> Drawing:
    """A token of a sequence goes through a model, and what comes out is appended."""
    lines, value = ["t = add(sequence, one)"], "t"
    for layer in range(layers):
        lines += [f"m{layer} = mm({value}, w{layer})", f"r{layer} = relu(m{layer})"]
        value = f"r{layer}"
    lines += [f"grown = mul(sequence, {value})", "stop = relu(grown)"]
    return Drawing("\n".join(lines), sizes={"sequence": length, "grown": length + 1})


MODEL = "mm relu " * 9


def changed(before: Drawing, after: Drawing) -> frozenset[int]:
    forms = Forms()
    assert forms.changed(before.trace) == frozenset()
    return forms.changed(after.trace)


def planned(drawing: Drawing, values: frozenset[int]) -> Plan:
    return plan(drawing.trace, drawing["grown stop"], (), changed=values)


def test_what_reads_or_makes_other_shapes_has_changed():
    after = generation(6)
    assert changed(generation(5), after) == {after.names[name] for name in ("t", "grown", "stop")}


def test_the_lasting_part_is_the_same_chunk_at_every_length():
    plans = []
    for length in (6, 7):
        drawing = generation(length)
        result = planned(drawing, changed(generation(5), drawing))
        assert draw(drawing, result).splitlines() == [
            "sequence, one -> t : add",
            "t!, " + ", ".join(f"w{layer}" for layer in range(9)) + f" -> r8 : {MODEL.strip()}",
            "sequence, r8! -> grown, stop : mul relu",
        ]
        leaves = random_numbers(drawing)
        assert run_plan(result, leaves) == numbers_of(drawing.trace, leaves, result.live)
        plans.append(result)
    one, other = plans
    assert one.chunks[1] == other.chunks[1]
    assert one.chunks[0] != other.chunks[0] and one.chunks[2] != other.chunks[2]
    assert any(
        line.startswith("set apart: 3 operations whose shapes keep changing, the first is add at")
        for line in one.decisions
    )


def test_a_form_seen_once_is_one_chunk():
    drawing = generation(5)
    assert len(planned(drawing, Forms().changed(drawing.trace)).chunks) == 1


def test_numbers_that_vary_are_no_change():
    text = "\n".join(f"v{at} = mul(a, b)" for at in range(changing.FEWEST))
    assert not changed(Drawing(text), Drawing(text, varying=(2, 3)))
    # Beside shapes that change they are: their operation is another one.
    after = Drawing(text, sizes={"v0": 5}, varying=(3,))
    assert changed(Drawing(text), after) == {after.names["v0"], after.names["v3"]}


def test_other_operations_are_another_form():
    forms = Forms()
    forms.changed(generation(5).trace)
    assert forms.changed(generation(6, layers=10).trace) == frozenset()
    # The first is still known beside it.
    assert forms.changed(generation(6).trace) != frozenset()


def test_short_traces_are_not_compared():
    before, after = generation(5, layers=2), generation(6, layers=2)
    assert len(after.nodes) < changing.FEWEST
    assert changed(before, after) == frozenset()


def test_only_so_many_forms_are_remembered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(changing, "MOST_FORMS", 2)
    forms = Forms()
    for layers in (9, 10, 11):
        forms.changed(generation(5, layers).trace)
    assert forms.changed(generation(6, 9).trace) == frozenset()
    assert forms.changed(generation(6, 11).trace) != frozenset()


def test_only_so_many_operations_are_remembered(monkeypatch: pytest.MonkeyPatch):
    sizes = {layers: len(generation(5, layers).nodes) for layers in (9, 10, 11)}
    monkeypatch.setattr(changing, "MOST_KEPT", sizes[10] + sizes[11])
    forms = Forms()
    for layers in (9, 10, 11):
        forms.changed(generation(5, layers).trace)
    assert forms.changed(generation(6, 10).trace) != frozenset()
    assert forms.changed(generation(6, 11).trace) != frozenset()
    assert forms.changed(generation(6, 9).trace) == frozenset()  # the first to go
    monkeypatch.setattr(changing, "MOST_KEPT", 1)
    forms.changed(generation(5, 9).trace)
    assert forms.changed(generation(6, 9).trace) != frozenset()  # the last one stays


def test_work_of_which_most_changes_stays_together():
    drawing = generation(6)
    dense = frozenset(drawing.names[f"m{layer}"] for layer in range(5))
    assert set_apart(drawing.nodes, dense) == (drawing.nodes, ())
    light = frozenset(drawing.names[f"r{layer}"] for layer in range(4, 9))
    assert set_apart(drawing.nodes, light) == (drawing.nodes, ())
    without_anchors = Drawing("\n".join(f"v{at} = relu(a)" for at in range(20)))
    some = frozenset([without_anchors.names["v3"]])
    assert set_apart(without_anchors.nodes, some) == (without_anchors.nodes, ())


def test_a_change_at_one_end_makes_one_border():
    drawing = generation(6)
    nodes, borders = set_apart(drawing.nodes, frozenset(drawing["grown stop"]))
    assert nodes == drawing.nodes and borders == (len(nodes) - 2,)
    assert stretches(borders, len(nodes)) == [(0, len(nodes) - 2), (len(nodes) - 2, len(nodes))]


def test_what_follows_a_change_goes_with_it():
    """One more border would be one more call."""
    drawing = generation(6)
    nodes, borders = set_apart(drawing.nodes, frozenset(drawing["t grown"]))
    assert borders == (1, len(nodes) - 2)
    assert [node.op for node in nodes[borders[1] :]] == ["mul", "relu"]
