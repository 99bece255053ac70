"""Rules of sequences that lie behind one another against PyTorch's CPU kernels."""

from __future__ import annotations

import math

import pytest
import torch

from tests.backends.rule_harness import check, unreached

OFFSETS = torch.tensor([0, 3, 3, 4, 8])
LENGTHS = (3, 2, 5)
"""Of the padded sequences: as long as the longest but one, shorter, longer than all."""
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool)


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(math.prod(shape)).reshape(shape) % 13


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_padded(dtype: torch.dtype) -> None:
    for rest in ((), (2,), (2, 1, 3)):
        for length in LENGTHS:
            check(
                "_jagged_to_padded_dense_forward",
                numbers(8, *rest).to(dtype),
                [OFFSETS],
                [length],
                1.25,
            )


@pytest.mark.parametrize("dtype", (torch.float32, torch.int64, torch.int32, torch.uint8), ids=str)
def test_infinite_padding_of_integers_is_their_extreme(dtype: torch.dtype) -> None:
    for padding in (float("inf"), float("-inf")):
        check("_jagged_to_padded_dense_forward", numbers(8, 2).to(dtype), [OFFSETS], [5], padding)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_behind_one_another(dtype: torch.dtype) -> None:
    for rest in ((2,), (2, 1, 3)):
        for length in (4, 6):
            dense = numbers(4, length, *rest).to(dtype)
            check("_padded_dense_to_jagged_forward", dense, [OFFSETS], 8)


def test_offsets_of_32_bits_and_parts_of_the_rows() -> None:
    check("_jagged_to_padded_dense_forward", numbers(8, 2), [OFFSETS.int()], [4])
    check("_jagged_to_padded_dense_forward", numbers(12, 2).float(), [OFFSETS + 2], [4])
    check("_padded_dense_to_jagged_forward", numbers(4, 4, 2), [OFFSETS.int()], 8)


def test_nothing() -> None:
    none = torch.zeros(4, dtype=torch.int64)
    check("_jagged_to_padded_dense_forward", numbers(0, 2), [none], [4], 7.0)
    check("_jagged_to_padded_dense_forward", numbers(8, 2), [OFFSETS], [0], 7.0)
    check("_padded_dense_to_jagged_forward", numbers(3, 4, 2), [none], 0)


def test_many_sequences() -> None:
    offsets = torch.arange(601) * 2
    check("_padded_dense_to_jagged_forward", numbers(600, 3, 1), [offsets], 1200)


def test_every_rule_is_reached() -> None:
    assert unreached("jagged") == set()
