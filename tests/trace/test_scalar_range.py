"""Which numbers fit a dtype, compared with PyTorch's own conversion."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from fuse.trace import reach
from fuse.trace.node import Node, NumberArg, Operand, TensorArg, Write
from fuse.trace.operators import with_a
from fuse.trace.refusals import refusal
from fuse.trace.scalar_range import range_of, unfit
from fuse.trace.spec import Layout, View
from fuse.versions import floats_truncate

NUMBERS = (
    *(0, 1, -1, 127, 128, -128, -129, 255, 256, -255, -256, 32767, 32768, 65504, 65505),
    *(2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**62, -(2**63)),
    *(0.5, -0.5, -1.0, 255.0, 255.5, 65504.0, 65505.0, 1e9, -1e9, 1e30, 3.39e38, 1e39, 1e300),
    *(math.inf, -math.inf, math.nan),
)
DTYPES = ("uint8", "int8", "int16", "int32", "int64", "bool", "float16", "bfloat16", "float32")


def fill(dtype: str, number: float, size: int = 3) -> Node:
    """``fill_`` of a row: place 0 is its offset, place 1 the number."""
    view, layout = View(dtype, (size,), (1,)), Layout(dtype, (size,))
    return Node(
        op="fill_.Scalar",
        target="fill_.Scalar",
        args=(TensorArg(0), NumberArg(number, 1)),
        operands=(Operand(0, view, layout, 0, fresh=True),),
        outputs=(),
        writes=(Write(0, 1, layout, view),),
        slots=(0,),
    )


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("dtype", [*DTYPES, "float64", "complex64"])
def test_a_number_fits_where_pytorch_converts_it(dtype: str, size: int) -> None:
    for number in NUMBERS:
        row = torch.zeros(size, dtype=getattr(torch, dtype))
        try:
            row.fill_(number)
        except RuntimeError as error:
            assert "without overflow" in str(error)
            assert unfit(fill(dtype, number, size)) == f"its number does not fit {dtype}", number
        else:
            assert unfit(fill(dtype, number, size)) is None, number


def test_the_range_of_a_place_is_that_of_its_kind_of_number() -> None:
    assert range_of(fill("uint8", 1), 1) == (-255, 255, False)
    most = math.nextafter(256, 0) if floats_truncate() else 255
    assert range_of(fill("uint8", 1.0), 1) == (0, most, False)
    assert range_of(fill("float16", 1.0), 1) == (-65504, 65504, True)
    assert range_of(fill("int64", 1), 1) is None  # all of them fit
    assert range_of(fill("uint8", 1), 0) is None  # an offset


def test_what_converts_a_number_has_no_other_bounds_for_it() -> None:
    bounded = {*reach.ACCEPTED, *reach.INTERVALS, *reach.RANKS, "pow"}
    assert bounded & (with_a("converted") | with_a("widened")) == set()


def test_the_host_decides_about_integers_past_int64() -> None:
    most = fill("int64", 1)
    assert refusal(replace(most, args=(TensorArg(0), 2**63 - 1))) is None
    assert refusal(replace(most, args=(TensorArg(0), 2**63))) == "a number is past int64"


def between(dtype: str, low: int, high: int) -> Node:
    """``random_`` of a row between two numbers, at places 1 and 2."""
    row = fill(dtype, 0)
    numbers = (NumberArg(low, 1), NumberArg(high, 2))
    return replace(
        row, op="random_.from", target="random_.from", args=(TensorArg(0), *numbers, None)
    )


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "float32"])
@pytest.mark.parametrize("width", [1, 2, 200, 2**31, 2**31 + 1, 2**32 - 2, 2**32, 2**40])
def test_ends_that_move_stay_apart_and_their_interval_is_drawn_from_one_word(
    dtype: str, width: int
) -> None:
    for low in (-(2**33), -5, 0, 7):
        node = between(dtype, low, low + width)
        ranges = [reach.reach(node, place) for place in (1, 2)]
        assert ranges[0] is not None and ranges[1] is not None
        (least, below, _), (above, most, _) = ranges
        if (least, most) != (low, low + width):
            assert below < above and most - least < 2**32
