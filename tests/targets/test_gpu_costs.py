"""Bytes and operations of a GPU's programs, on texts that jaxlib 0.10.2's plugin made for an H100.

The products are cuBLAS's, the convolutions cuDNN's; figures are computed by hand here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fuse.backends.estimates import Cost, Estimate
from fuse.backends.xla.gpu.costs import cost
from fuse.backends.xla.gpu.devices import MODELS
from fuse.backends.xla.targets import account, hlo

DATA = Path(__file__).parents[1] / "xla" / "data"
H100 = MODELS["h100"].machine


def sums(name: str) -> account.Sums:
    return account.sums(hlo.parse((DATA / name).read_text()), cost)


def costs(name: str) -> dict[str, Cost]:
    return {one.name: one for one in sums(name).costs}


def test_a_librarys_product_reads_its_matrices_and_writes_one_without_its_workspace() -> None:
    found = costs("h100_mlp.hlo")["cublas-lt-matmul.1"]
    assert found.flops == 2 * 128 * 100 * 300
    assert found.nbytes == 4 * (128 * 100 + 100 * 300 + 128 * 300)
    assert (found.unit, found.nodes, found.cycles) == ("float32", (0,), 0)


def test_a_product_of_half_precision_is_bound_by_its_own_peak() -> None:
    found = costs("h100_mlp.hlo")["custom-call.2"]
    # The compiler has padded both inner dimensions, 300 and 50, to multiples of 8.
    assert (found.unit, found.flops) == ("bfloat16", 2 * 128 * 304 * 56)


def test_a_fusion_reads_its_operands_and_writes_its_results_once() -> None:
    found = costs("h100_mlp.hlo")["input_add_reduce_fusion"]
    sliced, bias, written = 2 * 128 * 50, 4 * 50, 4 * 128 * 50 + 4
    assert found.nbytes == sliced + bias + written
    assert found.nodes == (2, 3, 4)
    assert found.unit == "vector"


def test_convolutions_take_as_many_operations_forward_as_for_each_gradient() -> None:
    found = costs("h100_conv.hlo")
    calls = [one for one in found.values() if one.opcode == "custom-call"]
    assert [one.flops for one in calls] == [2 * 8 * 32 * 32 * 32 * 16 * 9] * 3
    assert {one.unit for one in calls} == {"float32"}
    arrays = 4 * (8 * 16 * 32 * 32 + 32 * 16 * 9 + 8 * 32 * 32 * 32)
    assert {one.nbytes for one in calls} == {arrays}
    moved = [one for one in found.values() if one.opcode == "fusion"]
    assert {one.flops for one in moved} == {0}


def test_a_loop_counts_as_often_as_it_runs_and_an_update_in_place_by_what_it_writes() -> None:
    found = costs("h100_loop.hlo")
    body = found["loop_multiply_fusion"]
    assert (body.times, body.nbytes, body.flops) == (10, 10 * 2 * 64 * 4, 10 * 2 * 64)
    assert found["loop_dynamic_update_slice_fusion"].nbytes == 2 * 64 * 4  # of 1000 x 64
    assert found["loop_multiply_fusion.1"].nbytes == 2 * 2 * 64 * 4


def test_a_sort_has_no_figure() -> None:
    assert sums("h100_loop.hlo").unestimated == {"fusion sort": 1}


def test_what_goes_between_gpus_has_none_either() -> None:
    text = """HloModule one

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %all-reduce.1 = f32[8]{0} all-reduce(%a), replica_groups={{0,1}}, to_apply=%add
}
"""
    found = account.sums(hlo.parse(text), cost)
    assert (found.costs, found.unestimated) == ([], {"all-reduce": 1})


def test_the_roofline_is_the_longer_of_both_bounds_kernel_by_kernel() -> None:
    found = sums("h100_mlp.hlo").costs
    product, other = found[0], found[-1]
    compute, memory = H100.bounds(product)
    assert compute == pytest.approx(7.68e6 / 67e12) and memory == pytest.approx(324800 / 3350e9)
    assert compute > memory and H100.ticks(product) == round(compute * 1e12)
    assert H100.ticks(other) == round(other.nbytes / 3350e9 * 1e12)
    whole = Estimate(costs=tuple(found))
    assert H100.total(whole) == sum(H100.ticks(one) for one in found)
    assert Estimate.from_bytes(whole.to_bytes()) == whole


@pytest.mark.parametrize(
    ("line", "flops", "unit"),
    [
        ("dot(%a, %a), lhs_contracting_dims={1}, rhs_contracting_dims={0}", 2048, "tfloat32"),
        (
            "dot(%a, %a), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
            "operand_precision={highest,highest}",
            2048,
            "float32",
        ),
        ("dot(%i, %i), lhs_contracting_dims={1}, rhs_contracting_dims={0}", 2048, "vector"),
        ("dot(%c, %c), lhs_contracting_dims={1}, rhs_contracting_dims={0}", 8192, "float64"),
    ],
)
def test_the_peak_of_a_product_is_that_of_its_numbers(line: str, flops: int, unit: str) -> None:
    result = {"a": "f32", "i": "s32", "c": "c128"}[line[5]]
    text = f"""HloModule one

ENTRY %main (a: f32[8,16]) -> {result}[8,8] {{
  %a = f32[8,16]{{1,0}} parameter(0)
  %i = s32[8,16]{{1,0}} parameter(1)
  %c = c128[8,16]{{1,0}} parameter(2)
  ROOT %dot = {result}[8,8]{{1,0}} {line}
}}
"""
    (found,) = account.sums(hlo.parse(text), cost).costs
    assert (found.flops, found.unit) == (flops, unit)


def test_attention_multiplies_twice_forward_and_five_times_backward_half_of_the_scores() -> None:
    found = [one for one in sums("h100_attention.hlo").costs if one.opcode == "custom-call"]
    product = 2 * 8 * 2048 * 2048 * 128 // 2  # causal
    assert [(one.flops, one.node) for one in found] == [(2 * product, 0), (5 * product, 1)]
    assert {one.unit for one in found} == {"bfloat16"}
    array, sums_of_rows = 2 * 8 * 2048 * 128, 4 * 8 * 2048
    assert [one.nbytes for one in found] == [4 * array + sums_of_rows, 8 * array + sums_of_rows]
    assert sums("h100_attention.hlo").unestimated == {}
