"""The planner on small drawings: the trace before, the plan after, structure, counts, numbers."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest
from hypothesis import given, settings, strategies as st

from fuse.errors import VerifyError
from fuse.plan.liveness import bytes_alive, last_reads
from fuse.plan.plan import Plan
from fuse.plan.planner import plan
from fuse.plan.repeats import Repeat, find_repeats
from fuse.plan.scalars import compact_scalars
from fuse.plan.segment import EARLY_START, LONGEST, Outline, segments
from fuse.plan.speculation import starting_points
from fuse.trace.borders import Borders
from tests.plan.common import draw
from tests.trace.drawing import Drawing


def planned(
    drawing: Drawing, live: str, donatable: str = "", whole: int = 200, elsewhere: bool = True
) -> Plan:
    device = Borders(whole)
    return plan(drawing.trace, drawing[live], drawing[donatable], device, frozenset(), elsewhere)


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
    "an update that is used again": (
        """
        m2 over m = mul_(m, g)
        w2 over w = add_(w, m2)
        n = add(m2, w2)
        """,
        "m2 w2 n",
        "m w",
        "m!, g, w! -> m2, w2, n : mul_ add_ add",
    ),
    "two results of one size as a donation each": (
        """
        c = mul(a, b)
        d = add(a, c)
        """,
        "c d",
        "a b",
        "a!, b! -> c, d : mul add",
    ),
    "a leaf that is only passed by is not read": (
        """
        c = relu(a)
        d = mul(b, b)
        """,
        "c",
        "a b",
        "a! -> c : relu",
    ),
    "nothing alive is nothing to do": (CHAIN, "", "a", " ->  : "),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan(name: str):
    before, live, donatable, after = CASES[name]
    drawing = Drawing(dedent(before))
    assert draw(drawing, planned(drawing, live, donatable)) == after


def test_memory_that_nothing_was_written_to_is_no_input():
    text = """
        x = relu(u)
        y = add(u, a)
    """
    drawing = Drawing(dedent(text), undefined="u")
    assert draw(drawing, planned(drawing, "x y")) == "a -> x, y : relu add"
    # Its first use, which says so, may be dead.
    assert draw(drawing, planned(drawing, "y")) == "a -> y : add"


def test_long_light_stretches_are_ordered_by_component():
    """An optimizer over two tensors, recorded step by step, is chunked tensor by tensor."""
    lines = []
    for step in range(30):
        for name in "pq":
            before = f"{name}{step - 1}" if step else name
            lines.append(f"{name}{step} = relu({before})")
    drawing = Drawing("\n".join(lines))
    (chunk,) = planned(drawing, "p29 q29").chunks
    made = [drawing.name(value)[0] for node in chunk.nodes for value in node.results()]
    assert made == ["p"] * 30 + ["q"] * 30
    short = Drawing("\n".join(lines[:20]))
    (chunk,) = planned(short, "p9 q9").chunks
    made = [short.name(value)[0] for node in chunk.nodes for value in node.results()]
    assert made == ["p", "q"] * 10


def test_a_trace_is_cut_where_forward_turns_backward():
    """Forward keeps a value a layer, backward uses them up: the peak is the turn."""
    lines, value = [], "x"
    for layer in range(15):  # no two layers alike: there is no repeat to cut at
        lines += [f"f{layer} = mm({value}, w{layer})", f"h{layer} = act{layer}(f{layer})"]
        value = f"h{layer}"
    for layer in reversed(range(15)):
        lines += [f"b{layer} = mm({value}, f{layer})", f"g{layer} = back{layer}(b{layer})"]
        value = f"g{layer}"
    drawing = Drawing("\n".join(lines))
    result = planned(drawing, value, whole=20)
    assert "where forward turns backward" in result.decisions[0]
    before, after = result.chunks
    names = [drawing.name(value) for node in before.nodes for value in node.results()]
    assert {name[0] for name in names} <= set("fhb") and "f14" in names
    assert all(drawing.name(v)[0] in "fhb" for v in before.outputs) and len(before.outputs) >= 14


def trained(large: int, read: str = "l", whole: int = 200) -> tuple[Drawing, Plan]:
    """A step that makes a loss half-way; ``large`` numbers are in each value but the loss."""
    lines = ["f0 = mm(x, w0)", *(f"f{step} = relu(f{step - 1})" for step in range(1, 10))]
    lines += ["l = mean(f9)", "b9 = mean_backward(l)"]
    lines += [f"b{step} = relu_backward(b{step + 1}, f{step})" for step in range(8, -1, -1)]
    lines.append("v0 over w0 = sub_(w0, b0)")
    sizes = {line.split()[0]: large for line in lines} | {"l": 1, "x": large, "w0": large}
    drawing = Drawing("\n".join(lines), sizes=sizes)
    return drawing, planned(drawing, f"v0 {read}".strip(), whole=whole)


def test_a_trace_is_cut_behind_the_number_that_is_read():
    """The loss comes with the forward pass; the rest runs while the program goes on."""
    drawing, result = trained(1 << 16)
    before, after = result.chunks
    assert drawing.names["l"] in before.outputs and before.nodes[-1].op == "mean"
    assert after.nodes[0].op == "mean_backward" and after.nodes[-1].op == "sub_"
    assert "chunk 0: to the number that the program will read" in result.decisions
    assert any(line.startswith("chunk 1: what follows that number; ") for line in result.decisions)


def test_a_long_trace_turns_there_too():
    """Not once more a few operations later, at the peak of live bytes."""
    drawing, result = trained(1 << 16, whole=5)
    assert [chunk.nodes[-1].op for chunk in result.chunks] == ["mean", "sub_"]
    assert not any("peak" in line for line in result.decisions)


def inferred(large: int, layers: int = 8, elsewhere: bool = True) -> Plan:
    """Inference by layers of a product and three light operations; ``large`` numbers a value."""
    lines, value = [], "x"
    for layer in range(layers):
        lines.append(f"f{layer}_0 = mm({value}, w{layer})")
        lines += [f"f{layer}_{at} = relu{at}(f{layer}_{at - 1})" for at in range(1, 3)]
        lines.append(f"f{layer}_3 = add({value}, f{layer}_2)")
        value = f"f{layer}_3"
    lines.append(f"l = mean({value})")
    sizes = {line.split()[0]: large for line in lines} | {"l": 1, "x": large}
    sizes |= {f"w{layer}": large for layer in range(layers)}
    return planned(Drawing("\n".join(lines), sizes=sizes), "l", whole=50, elsewhere=elsewhere)


def test_heavy_inference_is_cut_so_that_its_beginning_runs_early():
    """Between two layers, where one value is alive."""
    result = inferred(1 << 17)
    first, rest = (chunk.nodes for chunk in result.chunks)
    assert len(first) == 12 and first[-1].op == "add" and len(rest) == 21
    assert len(result.chunks[0].outputs) == 1
    assert "chunk 0: what runs while the rest is recorded" in result.decisions


def test_what_runs_on_the_cores_that_record_is_not_cut_for_that():
    assert len(inferred(1 << 17, elsewhere=False).chunks) == 1


def test_a_device_says_what_is_worth_a_call_of_its_own():
    drawing, result = trained(1 << 16)  # 2.5 MB are made behind the loss
    assert len(result.chunks) == 2
    for worth, chunks in ((1 << 20, 2), (64 << 20, 1)):
        found = plan(drawing.trace, drawing["v0 l"], (), Borders(200, worth))
        assert len(found.chunks) == chunks


def test_a_device_says_what_a_large_product_counts_as():
    lines = [f"p{at} = mm({f'p{at - 1}' if at else 'x'}, w)" for at in range(20)]
    for large, dense, whole in ((1 << 18, 1, True), (1 << 18, 8, False), (1 << 10, 8, True)):
        sizes = {line.split()[0]: large for line in lines} | {"x": large, "w": large}
        drawing = Drawing("\n".join(lines), sizes=sizes)
        device = Borders(dense=dense)
        found = plan(drawing.trace, drawing["p19"], (), device, elsewhere=False)
        text = "chunk 0: the whole trace: 20 operations are within 120"
        assert (text in found.decisions) == whole


def test_blocks_of_a_device_with_long_chunks_are_long():
    """They grow with what a whole trace may be."""
    lines = []
    for at in range(200):
        lines += [f"p{at} = mm({f'r{at - 1}' if at else 'x'}, w)", f"r{at} = relu(p{at})"]
    drawing = Drawing("\n".join(lines))
    counts = [len(planned(drawing, "r199", whole=whole).chunks) for whole in (120, 360)]
    assert counts[0] > counts[1] > 1


def test_what_is_light_or_short_is_not_cut_for_that():
    assert len(inferred(1 << 10).chunks) == 1
    assert len(inferred(1 << 20, layers=3).chunks) == 1


def test_what_is_cut_into_several_blocks_is_not_cut_for_that():
    """Its first block starts early anyway."""
    result = inferred(1 << 17, layers=40)
    assert len(result.chunks) > 2
    assert not any(EARLY_START in line for line in result.decisions)


def test_a_plan_says_from_which_call_on_its_first_chunks_can_run():
    assert starting_points(inferred(1 << 17)) == ((12, 1),)
    assert starting_points(inferred(1 << 10)) == ()  # one chunk runs when all is recorded
    _, result = trained(1 << 16, whole=5)
    assert starting_points(result) == ()  # ten calls are not worth it


def test_a_chunk_that_consumes_a_large_leaf_waits_for_the_end():
    lines = ["v0 over w0 = mm(x, w0)", "f0 = relu(v0)"]
    lines += [*(f"f{at} = relu(f{at - 1})" for at in range(1, 9)), "l = mean(f8)", "b0 = mm(l, x)"]
    lines += [f"b{at} = relu_backward(b{at - 1}, f1)" for at in range(1, 20)]
    for large in (1 << 14, 1 << 16):  # numbers: 64 kB, 256 kB
        sizes = {line.split()[0]: large for line in lines} | {"l": 1, "x": large, "w0": large}
        drawing = Drawing("\n".join(lines), sizes=sizes)
        result = planned(drawing, "v0 l b19", "w0")
        consumed = result.chunks[0].donated
        assert len(result.chunks) == 2 and len(consumed) == (large > 1 << 14)
        assert starting_points(result) == (() if consumed else ((11, 1),))


def stepped(layers: int) -> Plan:
    """A training step of equal layers, twelve operations forward and twelve backward."""
    lines, value = [], "x"
    for layer in range(layers):
        lines.append(f"f{layer}_0 = mm({value}, w{layer})")
        lines += [f"f{layer}_{at} = relu{at}(f{layer}_{at - 1})" for at in range(1, 12)]
        value = f"f{layer}_11"
    lines.append(f"l = mean({value})")
    value = "l"
    for layer in reversed(range(layers)):
        lines.append(f"b{layer}_0 = mm({value}, f{layer}_5)")
        lines += [f"b{layer}_{at} = back{at}(b{layer}_{at - 1})" for at in range(1, 12)]
        value = f"b{layer}_11"
    sizes = {line.split()[0]: 1 << 16 for line in lines} | {"l": 1, "x": 1 << 16}
    sizes |= {f"w{layer}": 1 << 16 for layer in range(layers)}
    return planned(Drawing("\n".join(lines), sizes=sizes), f"{value} l", whole=50)


def test_short_passes_are_not_cut_at_their_blocks():
    assert len(stepped(7).chunks) == 2  # 85 and 84 operations
    deep = stepped(8)
    assert len(deep.chunks) > 8
    assert sum("block" in line for line in deep.decisions) > 8


def test_little_work_behind_the_number_is_not_worth_a_call():
    _, result = trained(1 << 10)
    assert len(result.chunks) == 1


def test_a_number_that_nobody_holds_is_no_reason_for_a_cut():
    _, result = trained(1 << 16, read="")
    assert len(result.chunks) == 1


def test_a_counter_written_in_place_is_no_answer():
    lines = ["m = add_one(n)", "n2 over n = copy_(n, m)"]
    lines += [f"f{step} = relu({f'f{step - 1}' if step else 'x'})" for step in range(20)]
    sizes = {f"f{step}": 1 << 16 for step in range(20)} | {"n": 1, "m": 1, "x": 1 << 16}
    drawing = Drawing("\n".join(lines[2:12] + lines[:2] + lines[12:]), sizes=sizes | {"n2": 1})
    assert len(planned(drawing, "n2 f19").chunks) == 1
    assert len(planned(drawing, "m n2 f19").chunks) == 2


def updated(tensors: int) -> tuple[str, dict[str, int], str]:
    """A compiled optimizer: a step count, four operations on numbers made of it, and four on the
    tensor, whose copies come last, and the first tensor's in another order."""
    lines, copies, sizes = [], [], {}
    for at in range(tensors):
        lines += [f"s{at} = one(n{at})", *(f"s{at}{k} = of{k}(s{at})" for k in "abcd")]
        lines += [f"p{at}{k} = to{k}(p{at}, s{at}{k}, x)" for k in "abc"]
        lines.append(f"q{at} = last(p{at}a, p{at}b, p{at}c, s{at}d)")
        both = [
            f"P{at} over p{at} = copy_(p{at}, q{at})",
            f"N{at} over n{at} = copy_(n{at}, s{at})",
        ]
        copies += reversed(both) if at else both
        sizes |= dict.fromkeys([f"p{at}", f"q{at}", f"P{at}", *(f"p{at}{k}" for k in "abc")], 64)
        sizes |= dict.fromkeys([f"n{at}", f"s{at}", f"N{at}", *(f"s{at}{k}" for k in "abcd")], 1)
    live = " ".join(f"P{at} N{at}" for at in range(tensors))
    return "\n".join(lines + copies), sizes | {"x": 64}, live


def test_operations_on_single_numbers_hardly_count():
    text, sizes, live = updated(4)  # 44 operations, 24 of them on single numbers
    result = planned(Drawing(text, sizes=sizes), live, whole=23)
    assert len(result.chunks) == 1
    reason = "44 operations are within 23, 24 of them on single numbers counted as 3"
    assert reason in result.decisions[-1]
    assert "between borders" in planned(Drawing(text, sizes=sizes), live, whole=22).decisions[-1]


def test_an_update_whose_copies_come_last_is_equal_blocks():
    text, sizes, live = updated(60)
    result = planned(Drawing(text, sizes=sizes), live, whole=100)
    assert [line for line in result.decisions if "block" in line] == list(result.decisions)
    assert len({tuple(node.target for node in chunk.nodes) for chunk in result.chunks}) == 1


def test_a_copy_stays_behind_what_makes_its_buffer():
    lines = ["a = one(x)", *(f"f{at} = relu({f'f{at - 1}' if at else 'a'})" for at in range(50))]
    lines.append("b over f49 = copy_(f49, a)")
    result = planned(Drawing("\n".join(lines), sizes=dict.fromkeys([*"axb", "f49"], 4)), "b")
    assert [node.op for node in result.chunks[0].nodes][-1] == "copy_"


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


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 3), max_size=300), st.integers(0, 100))
def test_segments_cover_the_trace_once(tokens: list[int], whole: int):
    pieces = segments(Outline(tokens, [0] * len(tokens), [], whole))
    stops = [0, *(piece.stop for piece in pieces)]
    assert [piece.start for piece in pieces] == stops[:-1] and stops[-1] == len(tokens)
    assert all(piece.reason for piece in pieces)


def test_a_long_stretch_is_cut_where_little_is_alive():
    total = LONGEST * 2
    alive = [10] * total
    alive[LONGEST - 30] = 1
    first, *_ = segments(Outline(list(range(total)), alive, []))
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
