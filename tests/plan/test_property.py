"""Every plan that the planner can produce gives the numbers of the trace run one by one."""

from __future__ import annotations

from dataclasses import dataclass
from unittest.mock import patch

import pytest
from hypothesis import given, settings, strategies as st

from fuse.plan import changing, order, planner, segment
from fuse.plan.plan import Plan
from fuse.trace.borders import Borders
from fuse.trace.renumber import renumber
from tests.plan.common import OPERATORS, numbers_of, random_numbers, run_nodes, run_plan
from tests.trace.drawing import Drawing

BOUNDS = ("LIGHT", "LONGEST", "LONGEST_LIGHT", "SMALLEST", "SMALLEST_LIGHT")
ARITY = {name: rule.__code__.co_argcount for name, rule in OPERATORS.items()}


@dataclass(frozen=True)
class Case:
    """A program, what must live on, and what may be reused."""

    drawing: Drawing
    live: tuple[int, ...]
    donatable: tuple[int, ...]


@st.composite
def blocks(draw: st.DrawFn) -> list[tuple[str, int, int, bool]]:
    """A block of operations: operator, two operands counted backwards, whether it writes."""
    step = st.tuples(
        st.sampled_from(sorted(OPERATORS)), st.integers(0, 5), st.integers(0, 5), st.booleans()
    )
    return draw(st.lists(step, min_size=1, max_size=10))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Programs with repeats: some blocks, each several times in a row, as layers are."""
    names, over, lines = ["u", "a", "b", "c"], set[str](), []
    for block in draw(st.lists(blocks(), min_size=1, max_size=3)):
        for _ in range(draw(st.integers(1, 5))):
            for operator, first, second, writes in block:
                usable = [name for name in names if name not in over]
                operands = [usable[-1 - at % len(usable)] for at in (first, second)]
                operands = operands[: ARITY[operator]]
                made, call = f"v{len(lines)}", f"({', '.join(operands)})"
                if writes and operands:
                    over.add(operands[0])
                    lines.append(f"{made} over {operands[0]} = {operator}_{call}")
                else:
                    lines.append(f"{made} = {operator}{call}")
                names.append(made)
    drawing = Drawing("\n".join(lines), undefined="u")
    made = [name for name in names if name.startswith("v") and name not in over]
    live = draw(st.lists(st.sampled_from(made), unique=True, max_size=8))
    leaves = [name for name in "abc" if name in drawing.names]
    donatable = draw(st.lists(st.sampled_from(leaves), unique=True)) if leaves else []
    return Case(drawing, drawing[" ".join(live)], drawing[" ".join(donatable)])


def check(case: Case, plan: Plan) -> None:
    """Numbers, and what else a plan promises."""
    leaves = random_numbers(case.drawing)
    assert run_plan(plan, leaves) == numbers_of(case.drawing.trace, leaves, case.live)
    assert set(plan.donated) <= set(case.donatable) - set(case.live)
    recorded = {value for node in case.drawing.nodes for value in node.results()}
    made = [value for chunk in plan.chunks for node in chunk.nodes for value in node.results()]
    assert len(made) == len(set(made)) and set(made) <= recorded
    assert sum("chunk" in line for line in plan.decisions) >= len(plan.chunks)
    # Equal chunks, numbered within themselves, are equal programs: they compute the same.
    for chunk in plan.chunks:
        nodes, numbers = renumber(chunk.nodes)
        here = {leaf.value: 5 + index for index, leaf in enumerate(chunk.inputs)}
        there = {numbers[value]: number for value, number in here.items()}
        run_nodes(chunk.nodes, here)
        run_nodes(nodes, there)
        assert [here[v] for v in chunk.outputs] == [there[numbers[v]] for v in chunk.outputs]


@settings(max_examples=250, deadline=None, derandomize=True)
@given(
    cases(),
    st.integers(0, 60),
    st.fixed_dictionaries({name: st.integers(2, 30) for name in BOUNDS}),
    st.integers(0, 40),
    st.sets(st.integers(0, 60)),
)
def test_every_plan_gives_the_traces_numbers(
    case: Case, whole: int, bounds: dict[str, int], longest: int, changed: set[int]
) -> None:
    defaults = order.ordered.__defaults__
    with pytest.MonkeyPatch.context() as settings_of:
        for name, value in bounds.items():
            settings_of.setattr(segment, name, value)
        settings_of.setattr(order.ordered, "__defaults__", (longest,))
        settings_of.setattr(changing, "SHARE", 1)
        arguments = (
            case.drawing.trace,
            case.live,
            case.donatable,
            Borders(whole),
            frozenset(changed),
        )
        check(case, planner.plan(*arguments))
    assert order.ordered.__defaults__ == defaults


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cases(), st.integers(0, 30), st.randoms(use_true_random=False))
def test_any_cuts_give_the_traces_numbers(case: Case, whole: int, random: object) -> None:
    """Whatever the policy: chunks, donation and the check hold for cuts at any places."""

    def anywhere(outline: segment.Outline) -> list[segment.Segment]:
        total = len(outline.tokens)
        places = sorted(random.sample(range(1, total), random.randint(0, total - 1)))  # type: ignore[attr-defined]
        ends = zip([0, *places], [*places, total], strict=True)
        return [segment.Segment(start, stop, "anywhere") for start, stop in ends]

    with patch.object(planner, "segments", anywhere):
        if any(True for _ in case.live):
            check(case, planner.plan(case.drawing.trace, case.live, case.donatable, Borders(whole)))
