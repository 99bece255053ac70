"""Rules of pooling and their gradients against PyTorch's CPU kernels."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules.registry import RuleContext
from tests.backends import rule_harness
from tests.backends.rule_harness import check, unreached

_GENERATOR = torch.Generator().manual_seed(0)
INF, NAN = float("inf"), float("nan")


def r(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if not dtype.is_floating_point:
        return torch.randint(-9, 9, shape, generator=_GENERATOR).to(dtype)
    return torch.randn(shape, generator=_GENERATOR).to(dtype)


# shape, kernel, stride, padding, dilation, ceil_mode
MAX: list[tuple[tuple[int, ...], list[int], list[int], list[int], list[int], bool]] = [
    ((2, 3, 8, 8), [2, 2], [2, 2], [0, 0], [1, 1], False),
    ((2, 3, 8, 8), [2, 2], [], [0, 0], [1, 1], False),
    ((2, 3, 9, 7), [2, 2], [2, 2], [1, 1], [1, 1], True),
    ((2, 3, 9, 7), [2, 3], [3, 4], [0, 0], [1, 1], False),
    ((2, 3, 9, 7), [3, 3], [2, 1], [1, 1], [1, 1], True),
    ((3, 9, 8), [3, 2], [1, 2], [1, 0], [2, 3], False),
    ((2, 2, 1, 9), [1, 3], [1, 2], [0, 1], [1, 1], False),
    ((2, 2, 4, 6, 5), [2, 2, 2], [2, 2, 2], [0, 1, 0], [1, 1, 1], True),
    ((2, 2, 4, 6, 5), [3, 2, 2], [1, 2, 1], [1, 0, 1], [1, 2, 1], False),
]
# shape, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
AVERAGE: list[tuple[tuple[int, ...], list[int], list[int], list[int], bool, bool, int | None]] = [
    ((2, 3, 8, 8), [2, 2], [2, 2], [0, 0], False, True, None),
    ((2, 3, 8, 8), [2, 2], [], [0, 0], False, True, None),
    ((2, 3, 8, 8), [8, 8], [1, 1], [0, 0], False, True, None),
    ((2, 3, 9, 7), [3, 3], [2, 2], [1, 1], True, True, None),
    ((2, 3, 9, 7), [3, 3], [2, 2], [1, 1], True, False, None),
    ((2, 3, 9, 7), [2, 4], [3, 1], [1, 2], False, True, 5),
    ((3, 9, 40), [1, 35], [1, 2], [0, 3], False, False, None),
    ((2, 2, 4, 6, 5), [2, 2, 2], [2, 2, 2], [0, 1, 0], True, False, None),
    ((2, 2, 4, 6, 5), [3, 2, 2], [1, 2, 1], [1, 0, 1], False, True, None),
]


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.int64), ids=str)
@pytest.mark.parametrize("shape, kernel, stride, padding, dilation, ceil", MAX)
def test_max(
    shape: tuple[int, ...],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil: bool,
    dtype: torch.dtype,
) -> None:
    name = f"max_pool{len(kernel)}d_with_indices"
    check(name, r(*shape, dtype=dtype), kernel, stride, padding, dilation, ceil)


@pytest.mark.parametrize("platform", ("cpu", "gpu"))
@pytest.mark.parametrize("shape, kernel, stride, padding, dilation, ceil", MAX)
def test_max_backward(
    shape: tuple[int, ...],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil: bool,
    platform: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        rule_harness, "RuleContext", functools.partial(RuleContext, platform=Platform(platform))
    )
    name = f"max_pool{len(kernel)}d_with_indices"
    options: list[Any] = [kernel, stride, padding, dilation, ceil]
    x = r(*shape)
    values, indices = getattr(torch.ops.aten, name)(x, *options)
    check(f"{name}_backward", torch.randn_like(values), x, *options, indices)


@pytest.mark.parametrize("fill", (NAN, -INF, INF, 0.0))
def test_max_of_equal_elements(fill: float) -> None:
    x = torch.full((1, 1, 6, 6), fill)
    check("max_pool2d_with_indices", x, [3, 3], [2, 2], [1, 1])
    check("max_pool2d_with_indices", x, [2, 2], [2, 2], [1, 1], [2, 2])
    x[0, 0, 2, 3] = NAN
    check("max_pool2d_with_indices", x, [3, 3], [1, 1], [1, 1])


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.int64), ids=str)
@pytest.mark.parametrize("shape, kernel, stride, padding, ceil, include, divisor", AVERAGE)
def test_average(
    shape: tuple[int, ...],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    ceil: bool,
    include: bool,
    divisor: int | None,
    dtype: torch.dtype,
) -> None:
    name = f"avg_pool{len(kernel)}d"
    if name == "avg_pool3d" and dtype == torch.bfloat16:
        pytest.skip("PyTorch's CPU kernel has no bfloat16")
    check(name, r(*shape, dtype=dtype), kernel, stride, padding, ceil, include, divisor)


@pytest.mark.parametrize("shape, kernel, stride, padding, ceil, include, divisor", AVERAGE)
def test_average_backward(
    shape: tuple[int, ...],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    ceil: bool,
    include: bool,
    divisor: int | None,
) -> None:
    name = f"avg_pool{len(kernel)}d"
    options: list[Any] = [kernel, stride, padding, ceil, include, divisor]
    x = r(*shape)
    grad = torch.randn_like(getattr(torch.ops.aten, name)(x, *options))
    check(f"{name}_backward", grad, x, *options)


@st.composite
def pools(draw: st.DrawFn) -> tuple[torch.Tensor, list[int], list[int], list[int], list[int]]:
    """An input, then kernel, stride, padding and dilation, of two or three dimensions."""
    dims = draw(st.integers(2, 3))

    def each(least: int, most: int) -> list[int]:
        return [draw(st.integers(least, most)) for _ in range(dims)]

    kernel = each(1, 4)
    if draw(st.integers(0, 7)) == 0:  # past the number of slices that are added one by one
        kernel[-1] = 33
    stride = draw(st.sampled_from(([], kernel, each(1, 4))))
    padding = [draw(st.integers(0, size // 2)) for size in kernel]
    lead = draw(st.sampled_from(((2,), (1, 2))))
    return r(*lead, *each(1, 9)), kernel, stride, padding, each(1, 2)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(pool=pools(), ceil=st.booleans())
def test_any_maximum(pool: Any, ceil: bool) -> None:
    """Windows that hang over the end, with ``ceil``, and windows of padding alone among them."""
    x, *options = pool
    dims = len(options[0])
    name = f"max_pool{dims}d_with_indices"
    try:
        values, indices = getattr(torch.ops.aten, name)(x, *options, ceil)
    except RuntimeError:  # no window fits
        return
    check(name, x, *options, ceil)
    if indices.max() < x.flatten(-dims).shape[-1]:  # else PyTorch's own writes anywhere
        check(f"{name}_backward", torch.randn_like(values), x, *options, ceil, indices)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    pool=pools(),
    ceil=st.booleans(),
    include=st.booleans(),
    divisor=st.sampled_from((None, None, 3, -2)),
)
def test_any_average(pool: Any, ceil: bool, include: bool, divisor: int | None) -> None:
    """Divisors of windows that hang over the end, or the padding after it."""
    x, kernel, stride, padding, _ = pool
    name, options = f"avg_pool{len(kernel)}d", [kernel, stride, padding, ceil, include, divisor]
    try:
        values = getattr(torch.ops.aten, name)(x, *options)
    except RuntimeError:  # no window fits
        return
    check(name, x, *options)
    check(f"{name}_backward", torch.randn_like(values), x, *options)


ADAPTIVE: list[tuple[tuple[int, ...], list[int]]] = [
    ((2, 3, 8, 6), [4, 3]),
    ((2, 3, 8, 6), [1, 1]),
    ((2, 3, 7, 5), [3, 4]),
    ((3, 7, 5), [3, 9]),
    ((2, 2, 5, 6, 4), [2, 3, 4]),
    ((2, 5, 6, 4), [1, 4, 3]),
    ((1, 1, 5, 4), [1, 1]),
    ((0, 3, 8, 6), [4, 3]),
]


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
@pytest.mark.parametrize("shape, out", ADAPTIVE)
def test_adaptive(shape: tuple[int, ...], out: list[int], dtype: torch.dtype) -> None:
    dims, x = len(out), r(*shape, dtype=dtype)
    check(f"_adaptive_avg_pool{dims}d", x, out)
    check(f"adaptive_max_pool{dims}d", x, out)
    grad = r(*shape[:-dims], *out, dtype=dtype)
    check(f"_adaptive_avg_pool{dims}d_backward", grad, x)
    _, indices = getattr(torch.ops.aten, f"adaptive_max_pool{dims}d")(x, out)
    check(f"adaptive_max_pool{dims}d_backward", grad, x, indices)


def test_adaptive_passes_infinity() -> None:
    x = r(1, 1, 5, 5)
    x[0, 0, 1, 1], x[0, 0, 3, 4] = INF, NAN
    check("_adaptive_avg_pool2d", x, [3, 3])
    check("adaptive_max_pool2d", x, [3, 3])


def test_unpool() -> None:
    values, indices = torch.ops.aten.max_pool2d_with_indices(r(2, 3, 6, 6), [2, 2])
    check("max_unpool2d", values, indices, [6, 6])
    values, indices = torch.ops.aten.max_pool3d_with_indices(r(2, 3, 4, 6, 4), [2, 2, 2])
    check("max_unpool3d", values, indices, [4, 6, 4], [2, 2, 2], [0, 0, 0])


@pytest.mark.parametrize("lead", ((2, 3), (3,)))
def test_fractional(lead: tuple[int, ...]) -> None:
    samples = torch.rand((*lead, 2) if len(lead) == 2 else (1, *lead, 2), generator=_GENERATOR)
    x, options = r(*lead, 9, 8), ([2, 3], [4, 3])
    check("fractional_max_pool2d", x, *options, samples)
    values, indices = torch.ops.aten.fractional_max_pool2d(x, *options, samples)
    check("fractional_max_pool2d_backward", torch.randn_like(values), x, *options, indices)
    samples = torch.rand((*lead, 3) if len(lead) == 2 else (1, *lead, 3), generator=_GENERATOR)
    x, wide = r(*lead, 9, 8, 7), ([2, 3, 2], [4, 3, 1])
    check("fractional_max_pool3d", x, *wide, samples)
    values, indices = torch.ops.aten.fractional_max_pool3d(x, *wide, samples)
    check("fractional_max_pool3d_backward", torch.randn_like(values), x, *wide, indices)


@pytest.mark.parametrize("fill", (NAN, -INF, 1.0))
def test_other_maxima_of_equal_elements(fill: float) -> None:
    x = torch.full((2, 3, 9, 8), fill)
    check("adaptive_max_pool2d", x, [4, 3])
    check("fractional_max_pool2d", x, [2, 3], [4, 3], torch.rand(2, 3, 2))
    x[0, 0, 2:4, 3] = NAN
    check("adaptive_max_pool2d", x, [4, 3])
    check("fractional_max_pool2d", x, [2, 3], [4, 3], torch.rand(2, 3, 2))


@pytest.mark.parametrize("window", ((0, 3), (2, 0), (0, 0)))
def test_fractional_windows_without_elements(window: tuple[int, int]) -> None:
    check("fractional_max_pool2d", r(2, 3, 9, 8), window, [4, 3], torch.rand(2, 3, 2) * 0.9)
    check("fractional_max_pool3d", r(2, 3, 9, 8, 7), (2, *window), [4, 3, 2], torch.rand(2, 3, 3))


def test_empty_batch() -> None:
    check("max_pool2d_with_indices", r(0, 3, 4, 4), [2, 2])
    check("avg_pool2d", r(0, 3, 4, 4), [2, 2])
    check("_adaptive_avg_pool2d", r(0, 3, 5, 4), [2, 2])
    check("fractional_max_pool2d", r(0, 3, 9, 8), [2, 3], [4, 3], torch.rand(0, 3, 2))
    check("fractional_max_pool3d", r(0, 3, 9, 8, 7), [2, 3, 2], [4, 3, 1], torch.rand(0, 3, 3))


def test_every_rule_is_reached() -> None:
    assert unreached("pooling", "adaptive_pooling") == set()
