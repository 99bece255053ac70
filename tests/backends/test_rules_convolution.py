"""Rules of convolutions and their gradients against PyTorch's CPU kernels."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import torch

from fuse.backends.xla.rules.registry import RuleContext
from fuse.trace.spec import TensorSpec
from tests.backends.rule_harness import RULES, check, to_array, to_tensor, unreached

_GENERATOR = torch.Generator().manual_seed(0)
Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]


def r(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if not dtype.is_floating_point:
        return torch.randint(-9, 9, shape, generator=_GENERATOR).to(dtype)
    return torch.randn(shape, generator=_GENERATOR).to(dtype)


PLAIN: list[Case] = [
    ((2, 4, 9), (6, 4, 3), {}),
    ((2, 4, 9), (6, 2, 3), {"stride": [2], "padding": [1], "groups": 2}),
    ((2, 4, 7, 6), (5, 4, 3, 2), {"padding": [1, 0]}),
    ((2, 1, 8, 8), (5, 1, 3, 3), {"padding": [1, 1]}),
    ((2, 3, 8, 7), (5, 3, 3, 2), {"stride": [2, 1], "dilation": [1, 2], "padding": [1, 1]}),
    ((2, 4, 8, 8), (8, 1, 3, 3), {"groups": 4, "stride": [2, 2], "padding": [1, 1]}),
    ((2, 4, 8, 8), (6, 4, 3, 3), {"stride": [3, 2], "dilation": [2, 1], "padding": [2]}),
    ((2, 4, 6, 6), (8, 1, 8, 8), {"groups": 4, "padding": [2, 2]}),
    ((2, 4, 5, 5), (6, 4, 1, 1), {}),
    ((9, 4, 1, 1), (6, 4, 1, 1), {}),
    ((2, 4, 5, 5), (6, 4, 1, 1), {"stride": [2, 2]}),
    ((2, 2, 5, 4, 6), (4, 2, 2, 3, 2), {"padding": [1, 0, 1], "stride": [2, 1, 1]}),
    ((2, 4, 5, 4, 6), (4, 2, 2, 3, 2), {"groups": 2}),
]
TRANSPOSED: list[Case] = [
    ((2, 4, 9), (4, 3, 3), {"stride": [2], "padding": [1], "output_padding": [1]}),
    ((2, 4, 5, 6), (4, 3, 3, 2), {"stride": [2, 3], "output_padding": [1, 0]}),
    ((2, 4, 5, 6), (4, 2, 3, 3), {"groups": 2, "padding": [2, 1], "dilation": [2, 1]}),
    ((2, 4, 5, 6), (4, 3, 1, 1), {}),
    ((2, 2, 3, 4, 3), (2, 3, 2, 2, 3), {"stride": [2, 1, 2], "padding": [1, 1, 1]}),
]
CASES = [(False, *case) for case in PLAIN] + [(True, *case) for case in TRANSPOSED]


def attributes(dims: int, transposed: bool, given: dict[str, Any]) -> list[Any]:
    ones, zeros = [1] * dims, [0] * dims
    return [
        given.get("stride", ones), given.get("padding", zeros), given.get("dilation", ones),
        transposed, given.get("output_padding", zeros), given.get("groups", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
@pytest.mark.parametrize("transposed, x, weight, given", CASES)
def test_forward(
    transposed: bool,
    x: tuple[int, ...],
    weight: tuple[int, ...],
    given: dict[str, Any],
    dtype: torch.dtype,
) -> None:
    channels = weight[1] * given.get("groups", 1) if transposed else weight[0]
    operands = (r(*x, dtype=dtype), r(*weight, dtype=dtype), r(channels, dtype=dtype))
    check("convolution", *operands, *attributes(len(x) - 2, transposed, given), wide=True)


@pytest.mark.parametrize("transposed, x, weight, given", CASES)
def test_backward(
    transposed: bool, x: tuple[int, ...], weight: tuple[int, ...], given: dict[str, Any]
) -> None:
    options = attributes(len(x) - 2, transposed, given)
    inputs, weights = r(*x), r(*weight)
    grad = torch.ops.aten.convolution(inputs, weights, None, *options)
    grad = r(*grad.shape)
    sizes = [grad.shape[1]]
    check("convolution_backward", grad, inputs, weights, sizes, *options, [True, True, True])


@pytest.mark.parametrize("dtype", (torch.float64, torch.int64, torch.float16), ids=str)
def test_other_dtypes(dtype: torch.dtype) -> None:
    for channels in (1, 4):
        operands = (r(2, channels, 7, 7, dtype=dtype), r(3, channels, 3, 3, dtype=dtype))
        check("convolution", *operands, None, *attributes(2, False, {}))


@pytest.mark.parametrize("mask", ([True, False, False], [False, True, False], [True, True, False]))
def test_backward_masks(mask: list[bool]) -> None:
    options = attributes(2, False, {"padding": [1, 1]})
    operands = (r(2, 5, 6, 6), r(2, 4, 6, 6), r(5, 4, 3, 3))
    check("convolution_backward", *operands, [5], *options, mask)


def test_backward_half() -> None:
    options = attributes(2, False, {"padding": [1, 1]})
    operands = (r(2, 5, 6, 6), r(2, 4, 6, 6), r(5, 4, 3, 3))
    half = (operand.bfloat16() for operand in operands)
    check("convolution_backward", *half, [5], *options, [True, True, True], wide=True)


def test_empty_batch() -> None:
    options = attributes(2, False, {})
    check("convolution", r(0, 4, 6, 6), r(5, 4, 3, 3), r(5), *options)
    operands = (r(0, 5, 4, 4), r(0, 4, 6, 6), r(5, 4, 3, 3))
    check("convolution_backward", *operands, [5], *options, [True, True, True])


@pytest.mark.parametrize("transposed, x, weight, given", [CASES[3], CASES[6], CASES[-4]])
def test_overrideable(
    transposed: bool, x: tuple[int, ...], weight: tuple[int, ...], given: dict[str, Any]
) -> None:
    """The overrideable operators have no CPU kernel: compare them with the plain ones."""
    assert RULES["convolution_overrideable"] is RULES["convolution"]
    options = attributes(len(x) - 2, transposed, given)
    inputs, weights = r(*x), r(*weight)
    grad = torch.randn_like(torch.ops.aten.convolution(inputs, weights, None, *options))
    mask = [True, True, True]
    expected = torch.ops.aten.convolution_backward(
        grad, inputs, weights, [grad.shape[1]], *options, mask
    )
    context = RuleContext(
        out=tuple(TensorSpec("float32", tuple(t.shape)) for t in expected), result_type="float32"
    )
    plain = [tuple(option) if isinstance(option, list) else option for option in options]

    def call(*arrays: jax.Array) -> Any:
        return RULES["convolution_backward_overrideable"](context, *arrays, *plain, tuple(mask))

    results = jax.jit(call)(to_array(grad), to_array(inputs), to_array(weights))
    for result, want in zip(results, expected, strict=True):
        torch.testing.assert_close(to_tensor(result), want, rtol=1e-4, atol=1e-4)


def test_conv_tbc() -> None:
    check("conv_tbc", r(7, 2, 3), r(3, 3, 4), r(4), 1)


def test_every_rule_is_reached() -> None:
    assert unreached("convolution") == set()
