"""Type promotion, against PyTorch's own over every pair of dtypes and ranks."""

from __future__ import annotations

import itertools

import pytest
import torch

from fuse.trace.promote import result_type

DTYPES = """
bool uint8 int8 int16 int32 int64 bfloat16 float16 float32 float64 complex64 complex128
""".split()  # noqa: SIM905  (a list of a dozen lines says no more)


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("ranks", [(1, 1), (1, 0), (0, 0)])
def test_pairs_of_tensors(ranks: tuple[int, int]):
    for first, second in itertools.product(DTYPES, DTYPES):
        tensors = [
            torch.empty((1,) * rank, dtype=getattr(torch, dtype))
            for dtype, rank in zip((first, second), ranks, strict=True)
        ]
        expected = name(torch.result_type(*tensors))
        assert result_type([(first, ranks[0], False), (second, ranks[1], False)]) == expected


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize(
    ("number", "dtype"), [(True, "bool"), (3, "int64"), (2.5, "float64"), (1j, "complex128")]
)
@pytest.mark.parametrize("standard", [torch.float32, torch.float64])
def test_tensors_and_numbers(rank: int, number: complex, dtype: str, standard: torch.dtype):
    torch.set_default_dtype(standard)
    try:
        for other in DTYPES:
            tensor = torch.empty((1,) * rank, dtype=getattr(torch, other))
            expected = name(torch.result_type(tensor, number))
            assert result_type([(other, rank, False), (dtype, 0, True)]) == expected
            assert result_type([(dtype, 0, True), (other, rank, False)]) == expected
    finally:
        torch.set_default_dtype(torch.float32)


def test_many_operands_and_none():
    assert result_type([]) is None
    assert (
        result_type([("int32", 1, False), ("float16", 0, False), ("int64", 2, False)]) == "float16"
    )
    assert result_type([("float32", 1, False)] * 3) == "float32"
