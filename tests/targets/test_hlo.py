"""The reader of optimised programs, on texts that libtpu 0.0.42 made for v5e."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuse.backends.estimates import KERNEL, Estimate
from fuse.backends.xla.targets import account, hlo
from fuse.backends.xla.tpu.costs import reader
from fuse.backends.xla.tpu.targets import GENERATIONS
from fuse.backends.xla.tpu.work import Work

COST = reader(GENERATIONS["v5e"].machine)
DATA = Path(__file__).parents[1] / "xla" / "data"


def program(name: str) -> hlo.Program:
    return hlo.parse((DATA / name).read_text())


def test_costs_carry_the_node_that_made_them() -> None:
    found = account.sums(program("v5e_mlp.hlo"), COST)
    assert [(cost.name, cost.cycles, cost.node, cost.nodes) for cost in found.costs] == [
        ("fusion.7", 2240, 0, (0, 1)),
        ("fusion.14", 2156, 0, (0, 1)),
    ]
    assert found.cycles == 4396
    assert not found.unestimated


def test_a_loop_counts_as_often_as_it_runs() -> None:
    found = account.sums(program("v5e_loop.hlo"), COST)
    body = [cost for cost in found.costs if cost.name.startswith("sine")] or found.costs
    assert found.unknown_loops == 0
    assert body[0].cycles % 10 == 0
    assert found.unestimated["sort"] == 1
    assert found.unestimated["fusion gather_fusion"] == 1


def test_a_loop_whose_bound_is_no_constant_counts_once() -> None:
    text = (DATA / "v5e_loop.hlo").read_text()
    unknown = account.sums(hlo.parse(text.replace("direction=LT", "direction=NE")), COST)
    assert unknown.unknown_loops == 1
    assert unknown.cycles < account.sums(hlo.parse(text), COST).cycles


def test_a_noted_number_of_trips_is_believed() -> None:
    text = (DATA / "v5e_loop.hlo").read_text()
    noted = text.replace(
        "body=%wide.region_0.2.sunk",
        'body=%wide.region_0.2.sunk, backend_config={"known_trip_count":{"n":"3"}}',
    )
    assert account.sums(hlo.parse(noted), COST).cycles < account.sums(hlo.parse(text), COST).cycles


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
    found = account.sums(program("v5e_mlp.hlo"), COST)
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
        Estimate.from_bytes(b'{"format": 3}')


def kernels(attributes: str, name: str = "n3.attention") -> hlo.Program:
    """A program with two kernels, as libtpu writes them: what they say of themselves has lines."""
    call = (
        "%{0} = (f32[8,128]{{1,0}}, f32[8]{{0}}) custom-call(%a), "
        'custom_call_target="tpu_custom_call", frontend_attributes={{kernel_metadata={{\n'
        '"xprof_metadata":"{{\\"block_q\\": 512}}"\n'
        '}}}}, metadata={{op_name="jit(chunk)/{1}/pallas_call"}}, '
        'backend_config={{"custom_call_config":{{"body":"QUJD"{2}}}}}\n'
    )
    text = "ENTRY %main (a: f32[8]) -> f32[8] {\n  %a = f32[8]{0} parameter(0)\n"
    for at in (1, 2):
        text += "  " + call.format(f"kernel.{at}", name, attributes)
    last = "  ROOT %b = f32[8]{0} get-tuple-element(%kernel.2), index=1\n}\n"
    return hlo.parse(text + last)


V5E = GENERATIONS["v5e"].machine


def test_a_kernel_costs_what_its_scope_states() -> None:
    """Two kernels do the work together: each half of it, at half of the peak."""
    program = kernels("", "n3.attention/stated_work.2.197000000000.1000.128")
    found = account.sums(program, reader(V5E))
    (first, second) = found.costs
    assert first.cycles == second.cycles == round(0.5e-3 / 0.5 * V5E.clock)
    assert (first.opcode, first.node, first.nodes) == (KERNEL, 3, (3,))
    assert first.flops + second.flops == 197_000_000_000
    assert not found.unestimated


def test_a_kernel_costs_what_its_own_estimate_states() -> None:
    estimate = '"cost_estimate":{"flops":"1000","transcendentals":"7","bytes_accessed":"819000000"}'
    found = account.sums(kernels("," + estimate), reader(V5E))
    assert [cost.cycles for cost in found.costs] == [round(1e-3 * V5E.clock)] * 2


def test_a_kernel_that_states_nothing_is_listed() -> None:
    found = account.sums(kernels(""), reader(V5E))
    assert found.cycles == 0
    assert found.unestimated == {"custom-call tpu_custom_call": 2}


def test_a_width_that_a_matrix_unit_does_not_fill_takes_as_long_as_one_that_does() -> None:
    half, whole = Work(10**12, 0, 64), Work(2 * 10**12, 0, 128)
    assert half.cycles(V5E) == whole.cycles(V5E) > Work(10**12, 0).cycles(V5E)
    v6e = GENERATIONS["v6e"].machine
    assert Work(10**12, 0, 128).cycles(v6e) == Work(2 * 10**12, 0, 256).cycles(v6e)
