"""Numbers that will vary are known by where in the code they are passed."""

from __future__ import annotations

import pytest

from fuse.trace import dynamic_scalars
from fuse.trace.dynamic_scalars import Numbers
from fuse.trace.node import HostArg, Node, NumberArg, Operand, TensorArg, Write
from fuse.trace.source import call_path
from fuse.trace.spec import Layout, View


def call(number: float, line: str = "net.py:3", size: int = 4, offset: int = 0) -> Node:
    """``mul`` of a vector in a buffer of ten and a number."""
    view = View("float32", (size,), (1,), offset)
    operand = Operand(0, view, Layout("float32", (10,)), 0)
    args = (TensorArg(0), NumberArg(number, 1))
    return Node("mul.Scalar", "mul.Scalar", args, (operand,), (), (), (), source=line)


def varied(numbers: Numbers, node: Node, *path: int) -> tuple[int, ...]:
    return numbers.varied(node, lambda: path)


def test_a_line_that_passed_another_number_in_an_earlier_trace():
    numbers = Numbers()
    assert varied(numbers, call(0.5)) == ()
    numbers.start()
    assert varied(numbers, call(0.5)) == ()
    numbers.start()
    assert varied(numbers, call(0.25)) == (1,)


def test_a_number_that_has_moved_is_never_a_constant_again():
    numbers = Numbers()
    found = []
    for number in (0.5, 0.25, 0.25, 0.5):
        numbers.start()
        found.append(varied(numbers, call(number)))
    assert found == [(), (1,), (1,), (1,)]


def test_calls_of_a_line_are_counted_within_their_trace():
    """Two constants on one line are no number that varies."""
    numbers = Numbers()
    for _ in range(2):
        numbers.start()
        assert varied(numbers, call(2.0)) == ()
        assert varied(numbers, call(3.0)) == ()
    numbers.start()
    assert varied(numbers, call(2.0)) == ()
    assert varied(numbers, call(4.0)) == (1,)


@pytest.mark.parametrize("other", [{"line": "net.py:4"}, {"size": 5}])
def test_other_lines_and_shapes_are_other_calls(other: dict[str, object]):
    numbers = Numbers()
    varied(numbers, call(1.0))
    numbers.start()
    assert varied(numbers, call(2.0, **other)) == ()


def test_other_places_of_the_code_behind_one_line_are_other_calls():
    """An optimizer is one line of its user's, and adds with several numbers in it."""
    numbers = Numbers()
    varied(numbers, call(1.0), 10, 20)
    numbers.start()
    assert varied(numbers, call(2.0), 11, 20) == ()
    numbers.start()
    assert varied(numbers, call(3.0), 10, 20) == (1,)


def test_a_place_is_where_every_frame_down_to_the_user_s_is():
    paths = [call_path() for _ in range(2)]
    assert paths[0] == paths[1] != call_path()
    assert len(paths[0]) == 1  # this file is the user's: its innermost frame ends the path


def test_offsets_and_host_numbers_vary_as_well():
    numbers = Numbers()
    varied(numbers, call(1.0, offset=2))
    numbers.start()
    assert varied(numbers, call(1.0, offset=3)) == (0,)
    for number in (1.0, 2.0):
        node = call(1.0, line="net.py:9")
        args = ((HostArg("float32", number, True, 1), HostArg("bool", True, False, None)),)
        numbers.start()
        found = varied(numbers, Node(node.op, node.target, args, (), (), (), (), source="net.py:9"))
        assert found == ((1,) if number == 2.0 else ())


def test_a_number_that_shapes_what_is_written_is_another_call():
    """As the end of a range does, where ``out=`` resizes its tensor."""
    numbers = Numbers()
    for number in (5.0, 7.0):
        view = View("int64", (int(number),), (1,))
        write = Write(0, 1, Layout("int64", view.shape), view)
        args = (NumberArg(number, 0),)
        numbers.start()
        node = Node("arange.out", "arange", args, (), (), (write,), (), source="net.py:3")
        assert varied(numbers, node) == ()


def test_only_so_many_places_are_remembered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dynamic_scalars, "MOST_PLACES", 2)
    numbers = Numbers()
    for line in ("a.py:1", "a.py:2", "a.py:3"):
        varied(numbers, call(1.0, line))
    numbers.start()
    assert varied(numbers, call(2.0, "a.py:1")) == ()
    assert varied(numbers, call(2.0, "a.py:3")) == (1,)
