"""Convolutions and products of integers, some of which a platform's compiler refuses: the values
are the CPU's, and the program has nothing that is refused."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import torch

from fuse.backends.xla.platform import NO_CONVOLUTIONS, NO_PRODUCTS, Platform
from fuse.backends.xla.rules.registry import RULES, RuleContext
from fuse.trace.spec import TensorSpec
from tests.backends.rule_harness import check, on_platform, to_array
from tests.backends.test_rules_convolution import CASES, attributes, r

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
CONVOLUTIONS = [
    (dtype, *case)
    for dtype in INTEGERS
    for case in CASES
    if dtype == torch.int64 or not (case[0] or "dilation" in case[3])
]
"""Of the transposed and the dilated ones the CPU has those of int64 alone."""


def primitives(platform: str, name: str, out: torch.Tensor, *operands: Any) -> str:
    """The text of the program that a rule writes for a platform."""
    dtype = str(out.dtype).removeprefix("torch.")
    spec = (TensorSpec(dtype, tuple(out.shape)),)
    context = RuleContext(spec, dtype, platform=Platform(platform))
    rest = [one for one in operands if not isinstance(one, torch.Tensor)]
    with jax.enable_x64(True):
        arrays = [to_array(one) for one in operands if isinstance(one, torch.Tensor)]
        return str(jax.make_jaxpr(lambda *given: RULES[name](context, *given, *rest))(*arrays))


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize("dtype, transposed, x, weight, given", CONVOLUTIONS)
def test_convolutions(
    dtype: torch.dtype,
    transposed: bool,
    x: tuple[int, ...],
    weight: tuple[int, ...],
    given: dict[str, Any],
    platform: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_platform(platform, monkeypatch, RuleContext)
    channels = weight[1] * given.get("groups", 1) if transposed else weight[0]
    operands = (r(*x, dtype=dtype), r(*weight, dtype=dtype), r(channels, dtype=dtype))
    options = attributes(len(x) - 2, transposed, given)
    check("convolution", *operands, *options)
    out = torch.ops.aten.convolution(*operands, *options)
    text = primitives(platform, "convolution", out, *operands, *map(_tuple, options))
    refused = str(dtype).removeprefix("torch.") in NO_CONVOLUTIONS[platform]
    assert ("conv_general_dilated" in text) != refused


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_convolutions_with_time_first(
    dtype: torch.dtype, platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_platform(platform, monkeypatch, RuleContext)
    operands = (r(5, 2, 3, dtype=dtype), r(2, 3, 4, dtype=dtype), r(4, dtype=dtype))
    for pad in (0, 2):
        check("conv_tbc", *operands, pad)
        text = primitives(platform, "conv_tbc", torch.conv_tbc(*operands, pad), *operands, pad)
        refused = str(dtype).removeprefix("torch.") in NO_CONVOLUTIONS[platform]
        assert ("conv_general_dilated" in text) != refused


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("mm", ((3, 4), (4, 5))),
        ("bmm", ((2, 3, 4), (2, 4, 5))),
        ("mv", ((3, 4), (4,))),
        ("dot", ((4,), (4,))),
        ("addmm", ((5,), (3, 4), (4, 5))),
        ("addbmm", ((3, 5), (2, 3, 4), (2, 4, 5))),
    ],
)
def test_products(
    name: str,
    shapes: tuple[tuple[int, ...], ...],
    dtype: torch.dtype,
    platform: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_platform(platform, monkeypatch, RuleContext)
    operands = [r(*shape, dtype=dtype) for shape in shapes]
    check(name, *operands)
    out = getattr(torch.ops.aten, name)(*operands)
    refused = str(dtype).removeprefix("torch.") in NO_PRODUCTS.get(platform, ())
    assert ("dot_general" in primitives(platform, name, out, *operands)) != refused
