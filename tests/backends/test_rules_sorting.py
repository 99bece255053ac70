"""Sorting, order statistics and searching against PyTorch's CPU kernels.

Where PyTorch leaves open which of several equal elements it names (``topk``, ``kthvalue``,
``median``, ``mode``), values are compared and every index must name an equal value.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch

from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules.registry import RuleContext, Unsupported
from fuse.backends.xla.rules.sorting import stable_order
from fuse.trace.spec import TensorSpec
from tests.backends.rule_harness import RULES, check, run, to_array, to_tensor, unreached

NAN, INF = float("nan"), float("inf")
WIDE = [torch.float64, torch.int64]
NARROW = [torch.float32, torch.bfloat16, torch.int32, torch.uint8]
ALL = [*WIDE, *NARROW, torch.bool]


def ties(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Few distinct values, so that most orders are decided by stability."""
    low = 0 if dtype in (torch.uint8, torch.bool) else -3
    whole = torch.randint(low, 4, shape, generator=torch.Generator().manual_seed(seed))
    return (whole > 1) if dtype == torch.bool else whole.to(dtype)


def distinct(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    count = torch.Size(shape).numel()
    order = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    return (order - count // 2).to(dtype).reshape(shape)


def check_choice(name: str, x: torch.Tensor, *args: Any) -> None:
    """Values as PyTorch's; indices may name any equal element, each at most once."""
    dim = args[-1] if name.endswith(".dim") else args[1]
    (values, indices), (want, _) = run(name, x, *args)
    torch.testing.assert_close(values, want, rtol=0, atol=0, equal_nan=True)
    if values.dim() < x.dim():
        values, indices = values.unsqueeze(dim), indices.unsqueeze(dim)
    torch.testing.assert_close(x.gather(dim, indices), values, rtol=0, atol=0, equal_nan=True)
    assert all(
        len(set(row.tolist())) == row.numel()
        for row in indices.movedim(dim, -1).reshape(-1, indices.shape[dim])
    )


SPECIAL = torch.tensor([1.0, NAN, -0.0, INF, 0.0, -INF, -NAN, 0.0, -1.0, -0.0, NAN, 1.0])


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable(dtype: torch.dtype, descending: bool) -> None:
    x = ties(4, 9, 3, dtype=dtype)
    for dim in (0, -1):
        check("sort", x, dim, descending)
    check("sort.stable", x, stable=True, dim=1, descending=descending)
    check("sort.stable", x, stable=None, dim=0, descending=descending)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_of_special_floats(dtype: torch.dtype, descending: bool) -> None:
    x = SPECIAL.to(dtype)
    check("sort", x, 0, descending)
    (values, indices), _ = run("sort", x, 0, descending)
    assert torch.equal(torch.signbit(values), torch.signbit(x[indices]))  # -0 stays -0


def test_sort_of_extreme_integers() -> None:
    for dtype in (torch.int64, torch.int32):
        info = torch.iinfo(dtype)
        x = torch.tensor([0, info.min, -1, info.max, info.min + 1, 1, info.max - 1], dtype=dtype)
        check("sort", x)
        check("sort", x, 0, True)
    near = torch.tensor([2**32, 5, 2**32 + 3, -(2**32) + 4, 2**31, -(2**31), 2**33 + 3])
    check("sort", near)
    for signed, unsigned in ((torch.int32, torch.uint32), (torch.int64, torch.uint64)):
        x = torch.tensor([0, -1, 1, torch.iinfo(signed).min], dtype=signed).view(unsigned)
        with jax.enable_x64(True):
            order = stable_order(RuleContext((), "int64"), to_array(x), 0, False)
        assert to_tensor(order).tolist() == [0, 2, 3, 1]


def test_sort_corners() -> None:
    check("sort", torch.tensor(3.0), 0)
    check("sort", torch.empty(0), 0)
    check("sort", torch.empty(3, 0), 1)
    check("sort", torch.empty(0, 3), 1, True)
    with pytest.raises(Unsupported, match="complex"):
        RULES["sort"](RuleContext((), "complex64"), jnp.ones(3, "complex64"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
@pytest.mark.parametrize("descending", [False, True])
def test_accelerators_sort_by_the_same_order(dtype: torch.dtype, descending: bool) -> None:
    x = SPECIAL.nan_to_num(2, 3, -3).to(dtype) if dtype != torch.float32 else SPECIAL
    context = RuleContext((), "float32")
    with jax.enable_x64(True):
        orders = [
            to_tensor(stable_order(each, to_array(x), 0, descending))
            for each in (context, dataclasses.replace(context, platform=Platform("tpu")))
        ]
    assert torch.equal(*orders)


@pytest.mark.parametrize("dtype", [*WIDE, *NARROW])
@pytest.mark.parametrize("largest", [True, False])
def test_topk(dtype: torch.dtype, largest: bool) -> None:
    x = distinct(3, 7, 2, dtype=dtype if dtype != torch.uint8 else torch.int16)
    for k in (1, 3):
        check("topk", x, k, 0, largest, True)
    check("topk", x, 4, 1, largest, True)
    check_choice("topk", ties(5, 9, dtype=dtype), 4, 1, largest)
    check("topk", ties(9, 5, dtype=dtype), 0, 0, largest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_counts_nan_as_largest(dtype: torch.dtype, largest: bool) -> None:
    for k in (2, 5, 12):
        check_choice("topk", SPECIAL.to(dtype), k, 0, largest)
    check("topk", torch.tensor(4.0), 1, 0, largest)
    check("topk", torch.empty(0, 3), 2, 1, largest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
def test_kthvalue(dtype: torch.dtype) -> None:
    x = distinct(3, 5, dtype=dtype)
    check("kthvalue", x, 2, 1)
    check("kthvalue", x, 1, 0, True)
    check_choice("kthvalue", ties(4, 9, dtype=dtype), 4, 1)
    check("kthvalue", torch.tensor([3.0, NAN, 1.0]), 3, 0)
    check("kthvalue", torch.tensor(3.0), 1, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_median(name: str, dtype: torch.dtype) -> None:
    for width in (4, 5):
        x = distinct(3, width, dtype=dtype)
        check(name, x)
        check(f"{name}.dim", x, 1)
        check(f"{name}.dim", x, 0, True)
        check_choice(f"{name}.dim", ties(6, width, dtype=dtype), 1)


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_median_with_nan(name: str) -> None:
    rows = torch.tensor([[3.0, NAN, 1.0, 2.0, NAN], [NAN] * 5, [5.0, 4.0, 3.0, 2.0, 1.0]])
    check(name, rows)
    check(f"{name}.dim", rows[::2], 1)
    (values, indices), (want, _) = run(f"{name}.dim", rows, 1)
    torch.testing.assert_close(values, want, equal_nan=True)
    assert rows[1, indices[1]].isnan()
    check(name, torch.empty(0))
    check(name, torch.tensor(2.0))
    check(f"{name}.dim", torch.tensor(2.0), 0)
    with pytest.raises(Unsupported, match="no integers"):
        run(name, torch.empty(0, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_mode(dtype: torch.dtype) -> None:
    x = ties(5, 9, dtype=dtype)
    for dim in (0, -1):
        (values, indices), (want, _) = run("mode", x, dim)
        assert torch.equal(values, want)
        assert torch.equal(x.gather(dim, indices.unsqueeze(dim)).squeeze(dim), values)
    check("mode", torch.tensor(3.0), 0)
    check("mode", torch.tensor([[1.0], [2.0]]), 1, True)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 100])
def test_searchsorted(size: int, right: bool) -> None:
    sequence = ties(size).sort().values
    values = torch.cat(
        [ties(3, 4).flatten() + 0.5, ties(8, seed=2), torch.tensor([NAN, INF, -INF])]
    )
    check("searchsorted.Tensor", sequence, values, right=right)
    check("searchsorted.Tensor", sequence, values.reshape(1, -1), right=right, out_int32=True)
    check("searchsorted.Scalar", sequence, 1, right=right)
    check("bucketize.Tensor", values, sequence, right=right)
    check("bucketize.Scalar", 0.5, sequence, right=right)


def test_searchsorted_corners() -> None:
    rows = ties(3, 6, dtype=torch.int64)
    ordered, sorter = rows.sort(1)
    values = ties(3, 4, dtype=torch.int64, seed=5)
    check("searchsorted.Tensor", ordered, values, side="right")
    check("searchsorted.Tensor", rows, values, side="left", sorter=sorter)
    check("searchsorted.Tensor", torch.tensor([1.0, 2.0, NAN]), torch.tensor([1.5, 3.0, NAN]))
    check("searchsorted.Tensor", ordered[0], torch.tensor(1))
    check("searchsorted.Tensor", ordered, torch.empty(3, 0, dtype=torch.int64))
    check("searchsorted.Scalar", ordered[0], 0.5)
    check("bucketize.Tensor", ties(4, dtype=torch.bfloat16), ties(9).sort().values.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
@pytest.mark.parametrize("candidates", [0, 5, 40])
@pytest.mark.parametrize("invert", [False, True])
def test_isin(dtype: torch.dtype, candidates: int, invert: bool) -> None:
    x = torch.arange(-20 if dtype != torch.uint8 else 0, 30).to(dtype).reshape(2, -1)
    check("isin.Tensor_Tensor", x, ties(candidates, dtype=dtype), invert=invert)
    check("isin.Tensor_Scalar", x, 3, invert=invert)
    check("isin.Scalar_Tensor", 3, ties(candidates, dtype=dtype), invert=invert)


def test_isin_corners() -> None:
    special = torch.tensor([NAN, 0.0, INF, 1.0])
    check("isin.Tensor_Tensor", special, torch.tensor([NAN, -0.0]))
    check("isin.Tensor_Tensor", special, torch.cat([special, torch.arange(2.0, 30.0)]))
    check("isin.Tensor_Tensor", torch.arange(5), torch.arange(0.0, 40.0, 2.0))
    check("isin.Tensor_Tensor", torch.empty(0), torch.ones(30))
    check("isin.Tensor_Tensor", torch.tensor(3.0), torch.arange(20.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_histc(dtype: torch.dtype) -> None:
    x = ties(40).to(dtype) * 0.37
    check("histc", x)
    check("histc", x, 4, -1, 1)
    check("histc", x, 3, 0.5, 0.5)
    check("histc", torch.full((5,), 2.0, dtype=dtype), 3)
    check("histc", torch.tensor([0.0, 1.0, 2.0, NAN, 5.0], dtype=dtype), 4, 0, 2)
    check("histc", torch.empty(0, dtype=dtype), 4)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_histc_of_integers(dtype: str) -> None:
    """PyTorch has it on accelerators alone: compare with counts of what stands there."""
    values = torch.tensor([0, 7, 3, 3, 1, 7, 2, 9, 100, 127], dtype=getattr(torch, dtype))
    for arguments, expected in (
        ((8, 0, 7), [1, 1, 1, 2, 0, 0, 0, 2]),
        ((4, 0, 7), [2, 3, 0, 2]),
        ((2,), [8, 2]),
    ):
        context = RuleContext((TensorSpec(dtype, (arguments[0],)),), dtype)
        with jax.enable_x64(True):
            found = to_tensor(RULES["histc"](context, to_array(values), *arguments))
        assert found.tolist() == expected, arguments


def test_every_rule_is_reached() -> None:
    assert unreached("sorting") == set()
