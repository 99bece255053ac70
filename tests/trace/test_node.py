"""The trace as data: numbering, equality, what is taken out, and how it prints."""

from __future__ import annotations

import dataclasses
from textwrap import dedent

import pytest

from fuse.trace.node import (
    DroppedArg,
    DtypeArg,
    HostArg,
    Node,
    NumberArg,
    Operand,
    Output,
    TensorArg,
    Trace,
    Write,
)
from fuse.trace.signature import program_text, signature
from fuse.trace.spec import Layout, View
from tests.trace.drawing import Drawing

VECTOR, LAYOUT = View("float32", (3,), (1,)), Layout("float32", (8,))
PART = View("float32", (3,), (1,), 2)


def scaled(number: float, offset: int = 2, blocks: int = 0, source: str = "") -> Node:
    """``x[offset:offset + 3] * number``: place 0 is the offset, place 1 the number."""
    return Node(
        op="mul.Scalar",
        target="mul.Scalar",
        args=(TensorArg(0), NumberArg(number, 1)),
        operands=(Operand(0, dataclasses.replace(PART, offset=offset), LAYOUT, 0, fresh=True),),
        outputs=(Output(1, VECTOR, Layout("float32", (3,))),),
        writes=(),
        slots=(0,),
        blocks=blocks,
        source=source,
    )


def test_a_trace_prints_as_a_program():
    drawing = Drawing(
        dedent("""
            c = mul.Tensor(a, b)
            d over a = add_.Tensor(a, c)
        """),
    )
    assert (
        str(drawing.trace)
        == dedent("""
        trace(%0:float32[4], %1:float32[4]; scalars=0)
          %2:float32[4] = mul.Tensor(%0:float32[4], %1:float32[4])
          %3:=%0:float32[4] = add_.Tensor(%0:float32[4], %2:float32[4])
    """).strip()
    )


def test_views_numbers_and_slots_print():
    traced = Trace.of([(scaled(2.5), (0, 1))])
    assert str(traced.nodes[0]) == (
        "%1:float32[3] = mul.Scalar(%0:float32[3], 0.0)  [offset #0->s0, #1->s1]"
    )
    assert str(scaled(2.5)) == "%1:float32[3] = mul.Scalar(%0:float32[3]@2:1, 2.5)"
    host, half = HostArg("float32", 1.5, True, None), DtypeArg("float16")
    mixed = dataclasses.replace(scaled(1), args=(host, half, DroppedArg(), (TensorArg(0),), "sum"))
    assert "(1.5:wrapped float32, float16, _, [%0:float32[3]@2:1], 'sum')" in str(mixed)


def test_a_number_that_varies_is_no_part_of_the_program():
    first, second = (Trace.of([(scaled(n, o), (0, 1))]) for n, o in [(2.5, 1), (7.0, 4)])
    assert first == second
    assert Trace.of([(scaled(2.5), (0,))]) != Trace.of([(scaled(7.0), (0,))])
    assert Trace.of([(scaled(2.5, 1), (1,))]) != Trace.of([(scaled(2.5, 4), (1,))])


def test_the_offset_of_a_written_view_is_taken_out_with_it():
    node = dataclasses.replace(
        scaled(1.0), op="mul_.Scalar", outputs=(), writes=(Write(0, 1, LAYOUT, PART),)
    )
    (kept,), (taken,) = Trace.of([(node, ())]).nodes, Trace.of([(node, (0,))]).nodes
    assert kept.writes[0].view.offset == 2 and taken.writes[0].view.offset == 0


def test_slots_are_numbered_along_the_trace_and_random_ones_come_last():
    other = dataclasses.replace(
        scaled(1.0, blocks=4),
        operands=(Operand(1, VECTOR, Layout("float32", (3,)), 0),),
        outputs=(Output(2, VECTOR, Layout("float32", (3,))),),
    )
    traced = Trace.of([(scaled(2.5), (0, 1)), (other, (1,))])
    assert [node.dynamic for node in traced.nodes] == [((0, 0), (1, 1)), ((1, 2),)]
    assert [node.random for node in traced.nodes] == [None, 3]
    assert traced.scalars == 5
    assert traced.nodes[0].slot_of(1) == 1 and traced.nodes[1].slot_of(0) is None
    assert traced.nodes[1].slot_of(None) is None


def test_leaves_are_the_values_first_met():
    drawing = Drawing("c = mul(a, b)\nd = add(c, e)")
    assert [drawing.name(leaf.value) for leaf in drawing.trace.leaves] == ["a", "b", "e"]
    undefined = dataclasses.replace(
        drawing.nodes[0],
        operands=tuple(
            dataclasses.replace(operand, initialised=False) for operand in drawing.nodes[0].operands
        ),
    )
    assert Trace.of([(undefined, ())]).leaves == ()


def test_layouts_know_every_value():
    drawing = Drawing("c = take(a)\nd over c = add_(c, b)", sizes={"a": 9})
    layouts = {drawing.name(v): layout.shape for v, layout in drawing.trace.layouts().items()}
    assert layouts == {"a": (9,), "b": (4,), "c": (4,), "d": (4,)}


def test_nodes_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        scaled(1.0).op = "add"
    assert hash(scaled(1.0)) == hash(scaled(1.0))


def test_operands_are_described_for_messages():
    assert scaled(1.0).describe_operands() == ("float32[3]",)
    assert list(scaled(1.0).results()) == [1]


def test_texts_are_equal_where_programs_are():
    here, there = scaled(2.5, source="a.py:1"), scaled(2.5, source="b.py:9")
    assert program_text((here,)) == program_text((there,))
    assert program_text((here,)) != program_text((scaled(3.5),))
    moved = dataclasses.replace(
        here,
        operands=(dataclasses.replace(here.operands[0], value=7, fresh=False),),
        outputs=(dataclasses.replace(here.outputs[0], value=9),),
    )
    assert signature(moved) == signature(here)
    assert signature(scaled(3.5)) != signature(here)
    twice = Drawing("b = mul(a, a)").nodes[0]
    assert signature(twice) != signature(Drawing("c = mul(a, b)").nodes[0])
