"""Rules that move, cut, join, pad and repeat dimensions agree with PyTorch's CPU kernels."""

from __future__ import annotations

import jax
import pytest
import torch

from fuse.backends.xla.rules.registry import Unsupported
from tests.backends.rule_harness import check, run, unreached

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]


def data(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    values = torch.randint(-4, 5, shape, generator=generator)
    return values.to(dtype) * 1j if dtype.is_complex else values.to(dtype)


x, cube, row, scalar = data(4, 6), data(2, 3, 4), data(7), data()
SHAPED = [
    ("view", x, [3, 8]), ("view_copy", x, [-1]), ("_unsafe_view", x, [2, 12]),
    ("view", scalar, [1]), ("reshape", x.t(), [24]), ("_reshape_copy", x, [6, 4]),
    ("_reshape_alias", x, [24], [1]), ("_reshape_alias_copy", x, [24], [1]), ("alias", x),
    ("alias_copy", x), ("detach", x), ("detach_copy", x), ("expand", row, [3, -1]),
    ("expand_copy", data(1, 4), [2, 5, 4]), ("permute", cube, [2, 0, 1]),
    ("permute_copy", cube, [-1, 0, 1]), ("transpose.int", cube, 0, -1),
    ("transpose_copy.int", cube, 1, 2), ("transpose.int", scalar, 0, -1), ("t", x), ("t", row),
    ("t_copy", x), ("t", scalar), ("unsqueeze", x, 1), ("unsqueeze_copy", x, -1),
    ("squeeze", data(1, 3, 1)), ("squeeze.dim", data(1, 3, 1), -1), ("squeeze.dim", x, 0),
    ("squeeze.dims", data(1, 3, 1), [0, 2]), ("squeeze_copy", data(1, 3, 1)),
    ("squeeze_copy.dim", data(1, 3, 1), 0), ("squeeze_copy.dims", data(1, 3, 1), [0]),
    ("view.dtype", x, torch.int32), ("view.dtype", x, torch.int16),
    ("view.dtype", x, torch.float64), ("view_copy.dtype", x, torch.uint8),
    ("view.dtype", x, torch.complex64), ("split.Tensor", x, 4, 1), ("split.sizes", x, [1, 5], 1),
    ("split_with_sizes", x, [2, 0, 2], 0), ("chunk", x, 4, 1), ("unsafe_chunk", x, 2),
    ("unsafe_split.Tensor", x, 3, -1), ("unsafe_split_with_sizes", x, [2, 4], -1),
    ("split_copy.Tensor", x, 3), ("split_with_sizes_copy", x, [1, 3]), ("unbind.int", cube, 1),
    ("unbind_copy.int", cube, -1), ("cat", [x, data(4, 2)], 1),
    ("cat", [x, data(2, 6, dtype=torch.int64)], -2), ("cat", [data(0), x]),
    ("cat", [data(0), data(0)]), ("cat", [x[:0], x]), ("cat", [x]), ("stack", [x, x + 1], 1),
    ("stack", [scalar, scalar + 1]), ("stack", [x], -1), ("_stack", [x, x.to(torch.bfloat16)], 0),
    ("_chunk_cat", [data(5, 4), data(2, 4)], 0, 2), ("_chunk_cat", [x, data(4, 3)], 1, 4),
    ("block_diag", [x, row, scalar, data(2, 1)]), ("flip", cube, [0, -1]), ("flip", scalar, []),
    ("roll", x, [2], [1]), ("roll", x, [-5]), ("roll", x, [1, 7], [0, 1]),
    ("roll", x[:0], [1], [0]), ("roll", x, [6], [1]), ("rot90", x, 1, [0, 1]),
    ("rot90", x, 2, [0, 1]), ("rot90", x, -1, [1, 0]), ("rot90", x, 4), ("repeat", x, [2, 1, 3]),
    ("repeat", scalar, [3]), ("repeat", x, [0, 2]), ("repeat", row, [1]), ("tile", x, [2]),
    ("pixel_shuffle", data(2, 8, 3, 2), 2), ("pixel_unshuffle", data(2, 4, 6), 2),
    ("channel_shuffle", data(2, 6, 3), 3), ("native_channel_shuffle", data(2, 6, 2, 2), 2),
]  # fmt: skip

SLICED = [
    ("slice.Tensor", x, 1, 1, 5, 2), ("slice.Tensor", x, 0, -3, None),
    ("slice.Tensor", x, 0, 3, 1), ("slice.Tensor", x, -1, None, 2**63 - 1, 4),
    ("slice_copy.Tensor", x, 1, -100, 100, 5), ("select.int", x, 1, -1),
    ("select_copy.int", cube, -2, 1), ("diagonal", x, 2), ("diagonal", x, -1), ("diagonal", x, 9),
    ("diagonal", cube, 1, 0, -1), ("diagonal", cube, 0, 2, 1), ("diagonal_copy", data(5, 5)),
    ("unfold", row, 0, 3, 2), ("unfold", x, 1, 2, 2), ("unfold_copy", cube, -1, 3, 1),
    ("unfold", scalar, 0, 1, 1), ("unfold", x, 0, 4, 1), ("unfold", data(80), 0, 40, 1),
    ("unfold", data(80), 0, 70, 4), ("unfold", x, 1, 0, 1), ("as_strided", x, [3, 2], [7, 1], 2),
    ("as_strided_copy", row, [3, 3], [2, 1]), ("slice_scatter", x, data(4, 3), 1, 0, None, 2),
    ("slice_scatter", x, data(2, 6), 0, -2), ("slice_scatter", x, data(0, 6), 0, 2, 2),
    ("select_scatter", x, data(4), 1, -2), ("select_scatter", row, scalar, 0, 3),
    ("diagonal_scatter", x, data(4), 1),
    ("diagonal_scatter", data(3, 4, 5), data(4, 2), -1, 0, 2),
    ("as_strided_scatter", x, data(3, 2), [3, 2], [7, 2], 1),
    ("slice_backward", data(4, 2), [4, 6], 1, 1, 5, 2),
    ("slice_backward", data(0, 6), [4, 6], 0, 3, 3, 1),
    ("slice_backward", data(2, 6), [4, 6], 0, 1, 3, 1), ("select_backward", row, [7, 5], -1, -2),
    ("select_backward", scalar, [4], 0, 1), ("diagonal_backward", data(4), [4, 6], 1, 0, 1),
    ("diagonal_backward", data(4, 2), [3, 4, 3], -1, 0, 2),
    ("diagonal_backward", data(3, 5), [3, 5, 5], 0, 1, 2), ("diag_embed", x),
    ("diag_embed", row, -2), ("diag_embed", x, 1, 0, 2), ("diag_embed", cube, 0, 1, -1),
    ("trace", x), ("trace", data(0, 3)), ("trace", data(3, 3, dtype=torch.bfloat16)),
    ("trace", data(3, 5, dtype=torch.int32)), ("trace_backward", scalar + 2, [4, 6]), ("tril", x),
    ("tril", cube, -1), ("tril", x, 100), ("triu", x, 1), ("triu", data(2, 4, 4), -2),
    ("triu", data(0, 4)), ("unfold_backward", data(3, 3), [7], 0, 3, 2),
    ("unfold_backward", data(4, 5, 2), [4, 6], 1, 2, 1),
    ("unfold_backward", data(1), [], 0, 1, 1),
    ("unfold_backward", data(3, 6, 2), [4, 6], 0, 2, 1),
    ("unfold_backward", data(41, 40), [80], 0, 40, 1),
]  # fmt: skip

PADDED = [
    ("constant_pad_nd", x, [1, 2], 5), ("constant_pad_nd", cube, [0, 1, 2, 0, -1, 1]),
    ("constant_pad_nd", x, [-2, -3, 1, -1], 0.5), ("constant_pad_nd", row.bool(), [1, 1], 1),
    ("reflection_pad1d", x, [2, 3]), ("reflection_pad1d", x, [-1, 2]),
    ("reflection_pad2d", cube, [1, 2, 0, 2]),
    ("reflection_pad3d", data(1, 2, 3, 3, 4), [1, 1, 2, 0, 0, 2]),
    ("reflection_pad1d_backward", data(4, 11), x, [2, 3]),
    ("reflection_pad2d_backward", data(2, 5, 7), cube, [1, 2, 0, 2]),
    ("reflection_pad3d_backward", data(1, 1, 4, 3, 6), data(1, 1, 3, 3, 4), [1, 1, 0, 0, 1, 0]),
    ("replication_pad1d", x, [4, 1]), ("replication_pad1d", x, [-2, 3]),
    ("replication_pad1d", data(2, 1), [2, 3]), ("replication_pad2d", cube, [1, 0, 2, 5]),
    ("replication_pad3d", data(2, 2, 2, 3), [1, 1, 0, 2, 1, 0]),
    ("replication_pad1d_backward", data(4, 11), x, [4, 1]),
    ("replication_pad2d_backward", data(2, 10, 5), cube, [1, 0, 2, 5]),
    ("replication_pad3d_backward", data(2, 3, 4, 5), data(2, 2, 2, 3), [1, 1, 0, 2, 1, 0]),
    ("_pad_circular", data(1, 2, 5), [2, 3]), ("_pad_circular", data(1, 2, 5, 4), [1, 0, -1, 2]),
    ("im2col", data(2, 3, 5, 6), [2, 3], [1, 1], [0, 0], [1, 1]),
    ("im2col", data(3, 5, 6), [2, 2], [2, 1], [1, 2], [2, 1]),
    ("col2im", data(2, 18, 16), [5, 6], [2, 3], [1, 1], [0, 0], [1, 1]),
    ("col2im", data(12, 27), [5, 6], [2, 2], [2, 1], [1, 2], [2, 1]),
]  # fmt: skip

CASES = SHAPED + SLICED + PADDED


def name(case: tuple) -> str:
    shown = ",".join(
        "x".join(map(str, a.shape)) if isinstance(a, torch.Tensor) else str(a)[:20]
        for a in case[1:]
    )
    return f"{case[0]}({shown})"


@pytest.mark.parametrize("case", CASES, ids=name)
def test_agrees_with_the_cpu_kernel(case):
    check(*case)


PER_DTYPE = [
    ("flip", [1]), ("roll", [1], [0]), ("repeat", [2, 2]), ("tril",), ("triu", 1), ("diagonal", 1),
    ("diag_embed",), ("slice.Tensor", 1, 0, 6, 2), ("permute", [1, 0]), ("constant_pad_nd", [1, 1]),
    ("diagonal_backward",), ("select_backward",), ("trace",),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", PER_DTYPE, ids=lambda case: case[0])
def test_every_dtype(case, dtype):
    if case[0] == "diagonal_backward":
        check(case[0], data(4, dtype=dtype), [4, 6], 0, 0, 1)
    elif case[0] == "select_backward":
        check(case[0], data(4, dtype=dtype), [4, 6], 1, 2)
    elif case == ("trace",) and dtype in (torch.bfloat16, torch.bool):
        check(case[0], data(3, 3, dtype=torch.float16 if dtype.is_floating_point else torch.int8))
    else:
        check(case[0], data(4, 6, dtype=dtype), *case[1:])


def test_negative_zero_and_nan_outside_the_band_become_zero():
    value = torch.tensor([[-0.0, float("nan")], [float("inf"), -1.0]])
    (lower,), _ = run("tril", value)
    assert torch.equal(lower, torch.tensor([[-0.0, 0.0], [float("inf"), -1.0]]))
    assert torch.signbit(lower[0, 0]) and not torch.signbit(lower[0, 1])


def test_repeats_have_a_known_total() -> None:
    check("repeat_interleave.Tensor", torch.tensor([2, 0, 3, 1]), output_size=6)
    check("repeat_interleave.Tensor", torch.tensor([0, 4]), output_size=4)
    with pytest.raises(Unsupported, match="depends on the data"):
        check("repeat_interleave.Tensor", torch.tensor([4, 0, 1]))


@pytest.mark.parametrize(
    ("case", "operations"),
    [
        (("slice.Tensor", x, 1, 1, 5, 2), ["slice"]),
        (("view", x, [24]), ["reshape"]),
        (("permute", cube, [2, 0, 1]), ["transpose"]),
        (("cat", [x, x], 1), ["concatenate"]),
        (("slice_backward", data(2, 6), [4, 6], 0, 1, 3, 1), ["pad"]),
        (("unfold", x, 1, 2, 2), ["reshape"]),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_emits_what_it_needs_and_no_more(case, operations, monkeypatch):
    seen = []
    jit = jax.jit

    def spying(function):
        def call(*args):
            seen.extend(e.primitive.name for e in jax.make_jaxpr(function)(*args).eqns)
            return jit(function)(*args)

        return call

    monkeypatch.setattr(jax, "jit", spying)
    run(*case)
    assert [op for op in seen if op != "broadcast_in_dim"] == operations


def test_every_rule_is_reached() -> None:
    assert unreached("shape", "slicing", "padding") == set()
