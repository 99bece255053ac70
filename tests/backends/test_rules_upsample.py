"""Rules of resampling against PyTorch's CPU kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.backends.rule_harness import GONE, RULES, check, find, unreached

_GENERATOR = torch.Generator().manual_seed(0)
SIZES: dict[int, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {
    1: [((2, 3, 5), (10,)), ((2, 3, 7), (4,)), ((1, 2, 4), (7,)), ((1, 2, 1), (3,))],
    2: [((2, 3, 4, 5), (8, 15)), ((2, 3, 7, 6), (3, 4)), ((1, 2, 4, 3), (9, 1))],
    3: [((1, 2, 3, 4, 2), (6, 8, 4)), ((1, 2, 5, 4, 3), (3, 5, 7))],
}
NEAREST = ["upsample_nearest{}d", "_upsample_nearest_exact{}d"]
SMOOTH = [
    ("upsample_linear1d", 1),
    ("upsample_bilinear2d", 2),
    ("upsample_bicubic2d", 2),
    ("upsample_trilinear3d", 3),
    ("_upsample_bilinear2d_aa", 2),
    ("_upsample_bicubic2d_aa", 2),
    ("_upsample_lanczos2d_aa", 2),
]
SMOOTH = [one for one in SMOOTH if one[0] not in GONE]


def r(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if not dtype.is_floating_point:
        return torch.randint(0, 99, shape, generator=_GENERATOR).to(dtype)
    return torch.randn(shape, generator=_GENERATOR).to(dtype)


def both(name: str, shape: tuple[int, ...], out: tuple[int, ...], *rest: Any) -> None:
    check(name, r(*shape), out, *rest)
    check(f"{name}_backward", r(*shape[:2], *out), out, shape, *rest)


@pytest.mark.parametrize("dims", (1, 2, 3))
@pytest.mark.parametrize("name", NEAREST)
def test_nearest(name: str, dims: int) -> None:
    for shape, out in SIZES[dims]:
        both(name.format(dims), shape, out)
    shape, out = SIZES[dims][0]
    both(name.format(dims), shape, out, *(size / n for size, n in zip(out, shape[2:], strict=True)))
    both(name.format(dims), shape, out, *([2.3] * dims))
    check(name.format(dims), r(*shape, dtype=torch.uint8), out)
    check(name.format(dims), r(*shape, dtype=torch.bfloat16), out)


@pytest.mark.parametrize("align", (False, True))
@pytest.mark.parametrize("name, dims", SMOOTH)
def test_smooth(name: str, dims: int, align: bool) -> None:
    for shape, out in SIZES[dims][: 1 if align else None]:
        if "_aa" in name and out[-1] == 1:
            continue  # PyTorch 2.13's CPU kernel repeats the first row there
        both(name, shape, out, align)
    shape, out = SIZES[dims][0]
    if not align:
        # With a smaller scale the last windows of the antialiased ones lie outside of the input,
        # and PyTorch's kernel multiplies memory nobody wrote by zero.
        both(name, shape, out, align, *([3.3 if "_aa" in name else 2.3] * dims))
    if "_aa" not in name:
        check(name, r(*shape, dtype=torch.bfloat16), out, align)


def test_double_precision() -> None:
    check("upsample_bilinear2d", r(1, 1, 5, 7, dtype=torch.float64), [9, 8], False)
    check("upsample_bicubic2d", r(1, 1, 5, 7, dtype=torch.float64), [9, 8], True)


@pytest.mark.parametrize("name, dims", [(n.format(d), d) for n in NEAREST for d in (1, 2, 3)])
def test_nearest_vec(name: str, dims: int) -> None:
    shape, out = SIZES[dims][0]
    check(f"{name}.vec", r(*shape), out, None)
    check(f"{name}.vec", r(*shape), None, [1.5] * dims)


@pytest.mark.parametrize("name, dims", SMOOTH)
def test_smooth_vec(name: str, dims: int) -> None:
    shape, out = SIZES[dims][0]
    check(f"{name}.vec", r(*shape), out, False, None)
    check(f"{name}.vec", r(*shape), None, False, [1.5] * dims)


@pytest.mark.parametrize("align", (False, True))
@pytest.mark.parametrize("padding", (0, 1, 2))
@pytest.mark.parametrize("mode, dims", ((0, 2), (1, 2), (2, 2), (0, 3), (1, 3)))
def test_grid_sampler(mode: int, dims: int, padding: int, align: bool) -> None:
    x = r(2, 3, *(4, 5, 3)[:dims])
    grid = r(2, *(3, 4, 2)[:dims], dims) * 1.2
    name = f"grid_sampler_{dims}d"
    check(name, x, grid, mode, padding, align)
    grad = r(*x.shape[:2], *grid.shape[1:-1])
    check(f"{name}_backward", grad, x, grid, mode, padding, align, [True, True])
    if mode == 1:
        check(f"{name}_backward", grad, x, grid, mode, padding, align, [False, True])


def test_every_rule_exists_in_pytorch() -> None:
    names = [name for name in RULES if "upsample" in name]
    assert len(names) == 39
    assert all(find(name) for name in names if name not in GONE)


def test_every_rule_is_reached() -> None:
    assert unreached("upsample", "grid_sample") == set()
