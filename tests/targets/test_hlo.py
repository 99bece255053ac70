"""The reader of optimised programs, on texts that libtpu 0.0.42 made for v5e."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuse.backends.estimates import Estimate
from fuse.backends.xla.tpu import hlo

DATA = Path(__file__).parents[1] / "xla" / "data"


def program(name: str) -> hlo.Program:
    return hlo.parse((DATA / name).read_text())


def test_costs_carry_the_node_that_made_them() -> None:
    found = hlo.sums(program("v5e_mlp.hlo"))
    assert [(cost.name, cost.cycles, cost.node, cost.nodes) for cost in found.costs] == [
        ("fusion.7", 2240, 0, (0, 1)),
        ("fusion.14", 2156, 0, (0, 1)),
    ]
    assert found.cycles == 4396
    assert not found.unestimated


def test_a_loop_counts_as_often_as_it_runs() -> None:
    found = hlo.sums(program("v5e_loop.hlo"))
    body = [cost for cost in found.costs if cost.name.startswith("sine")] or found.costs
    assert found.unknown_loops == 0
    assert body[0].cycles % 10 == 0
    assert found.unestimated["sort"] == 1
    assert found.unestimated["fusion gather_fusion"] == 1


def test_a_loop_whose_bound_is_no_constant_counts_once() -> None:
    text = (DATA / "v5e_loop.hlo").read_text()
    unknown = hlo.sums(hlo.parse(text.replace("direction=LT", "direction=NE")))
    assert unknown.unknown_loops == 1
    assert unknown.cycles < hlo.sums(hlo.parse(text)).cycles


def test_a_noted_number_of_trips_is_believed() -> None:
    text = (DATA / "v5e_loop.hlo").read_text()
    noted = text.replace(
        "body=%wide.region_0.2.sunk",
        'body=%wide.region_0.2.sunk, backend_config={"known_trip_count":{"n":"3"}}',
    )
    assert hlo.sums(hlo.parse(noted)).cycles < hlo.sums(hlo.parse(text)).cycles


@pytest.mark.parametrize(
    ("shape", "nbytes", "padded"),
    [
        ("f32[128,100]{1,0:T(8,128)}", 128 * 100 * 4, 128 * 128 * 4),
        ("f32[128,100]{0,1:T(8,128)}", 128 * 100 * 4, 128 * 104 * 4),
        ("bf16[64,50]{1,0:T(8,128)(2,1)}", 64 * 50 * 2, 64 * 128 * 2),
        ("f32[50]{0:T(128)S(1)}", 200, 512),
        ("s32[]{:T(128)}", 4, 512),
        ("pred[3,7]{1,0:T(8,128)(4,1)}", 21, 8 * 128),
        ("f32[2,3,5]{2,1,0:T(8,128)}", 120, 2 * 8 * 128 * 4),
        ("f32[128,100]{1,0}", 128 * 100 * 4, 128 * 100 * 4),
        ("f32[0,8]{1,0:T(8,128)}", 0, 0),
    ],
)
def test_padding_is_what_the_tiles_add(shape: str, nbytes: int, padded: int) -> None:
    (held,) = hlo.arrays(shape)
    assert (held.nbytes, held.padded) == (nbytes, padded)


def test_arguments_and_results_are_in_the_programs_order() -> None:
    found = program("v5e_mlp.hlo")
    assert [held.text.partition("{")[0] for held in found.arguments()] == [
        "f32[128,100]",
        "f32[100,300]",
        "f32[300,50]",
        "f32[50]",
    ]
    assert [held.nbytes for held in found.results()] == [128 * 50 * 4, 4]


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing is entered"):
        hlo.parse("HloModule nothing\n")


def test_an_estimate_survives_the_cache() -> None:
    found = hlo.sums(program("v5e_mlp.hlo"))
    one = Estimate(
        cycles=found.cycles,
        costs=tuple(found.costs),
        arguments=program("v5e_mlp.hlo").arguments(),
        temporary_bytes=5,
    )
    assert Estimate.from_bytes(one.to_bytes()) == one
    assert 0 < one.padding < 1
    with pytest.raises(ValueError, match="no stored estimate"):
        Estimate.from_bytes(b'{"format": 0}')
    with pytest.raises(ValueError, match="another shape"):
        Estimate.from_bytes(b'{"format": 1}')
