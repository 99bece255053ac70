"""View resolution: which shape of the flat array each common view is a slice of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st

from fuse.trace.spec import Layout, View, contiguous_strides
from fuse.trace.views import dynamic_bounds, resolve


def view_of(tensor: torch.Tensor) -> View:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return View(dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())


def base(*shape: int) -> torch.Tensor:
    return torch.empty(shape)


def resolved(tensor: torch.Tensor, *layout: int):
    return resolve(Layout("float32", layout), view_of(tensor))


def test_the_whole_buffer_is_a_reshape():
    found = resolved(base(2, 3), 2, 3)
    assert found.is_reshape and found.takes_all


def test_another_cut_of_the_whole_buffer_is_a_reshape():
    """[2,3,4] seen as [6,4], and with a size-1 dimension between."""
    for shape in [(6, 4), (24,), (2, 1, 12)]:
        found = resolved(base(2, 3, 4).view(shape), 2, 3, 4)
        assert found.is_reshape


def test_a_scalar_buffer():
    assert resolve(Layout("float32", ()), view_of(base())).is_reshape
    assert resolve(Layout("float32", ()), view_of(base().view(1, 1))).is_reshape


COMMON = [
    # name, layout, view, base_shape, starts, sizes, steps, axes
    ("rows      x[2:5]", (8, 3), lambda x: x[2:5], (8, 3), (2, 0), (3, 3), (1, 1), (0, 1)),
    ("columns   x[:, 1:3]", (8, 5), lambda x: x[:, 1:3], (8, 5), (0, 1), (8, 2), (1, 1), (0, 1)),
    ("transpose x.t()", (8, 5), lambda x: x.t(), (8, 5), (0, 0), (8, 5), (1, 1), (1, 0)),
    ("select    x[:, 2]", (8, 5), lambda x: x[:, 2], (8, 5), (0, 2), (8, 1), (1, 1), (0,)),
    ("select    x[3]", (8, 5), lambda x: x[3], (8, 5), (3, 0), (1, 5), (1, 1), (1,)),
    ("steps     x[:, ::2]", (8, 5), lambda x: x[:, ::2], (8, 5), (0, 0), (8, 3), (1, 2), (0, 1)),
    ("steps     x[1::3]", (8, 5), lambda x: x[1::3], (8, 5), (1, 0), (3, 5), (3, 1), (0, 1)),
    ("expand    x[:, :1] x 7", (8, 5), lambda x: x[:, :1].expand(8, 7),
     (8, 5), (0, 0), (8, 1), (1, 1), (0,)),
    ("qkv heads [B,T,3C] -> k [B,H,T,D]", (2, 6, 24),
     lambda x: x.split(8, dim=2)[1].view(2, 6, 4, 2).transpose(1, 2),
     (2, 6, 12, 2), (0, 0, 4, 0), (2, 6, 4, 2), (1, 1, 1, 1), (0, 2, 1, 3)),
    ("heads merged, rows across the batch", (4, 6, 3), lambda x: x.view(24, 3)[5:9],
     (24, 3), (5, 0), (4, 3), (1, 1), (0, 1)),
    ("channels last", (2, 4, 4, 3), lambda x: x.permute(0, 3, 1, 2),
     (2, 4, 4, 3), (0, 0, 0, 0), (2, 4, 4, 3), (1, 1, 1, 1), (0, 3, 1, 2)),
    ("diagonal", (5, 5), lambda x: x.diagonal(), (25,), (0,), (5,), (6,), (0,)),
    ("batch of diagonals", (3, 5, 5), lambda x: x.diagonal(1, 1, 2),
     (3, 25), (0, 1), (3, 4), (1, 6), (0, 1)),
    ("patches of 2x2", (4, 6), lambda x: x.unfold(0, 2, 2).unfold(1, 2, 2),
     (2, 2, 3, 2), (0, 0, 0, 0), (2, 2, 3, 2), (1, 1, 1, 1), (0, 2, 1, 3)),
    ("every other row of an odd number, from a flat buffer", (15,),
     lambda x: x.view(5, 3)[::2], (5, 3), (0, 0), (3, 3), (2, 1), (0, 1)),
]  # fmt: skip


@pytest.mark.parametrize("case", COMMON, ids=lambda case: case[0])
def test_common_views_are_slices(case):
    _, layout, make, base_shape, starts, sizes, steps, axes = case
    found = resolved(make(base(*layout)), *layout)
    assert found.kind == "strided" and not found.windowed and not found.padding
    got = (found.base_shape, found.starts, found.sizes, found.steps, found.axes)
    assert got == (base_shape, starts, sizes, steps, axes)


def test_expanded_dimensions_are_broadcast_not_read():
    found = resolved(base(3).expand(4, 3), 3)
    assert found.kind == "strided" and found.sizes == (3,) and found.inner_shape == (1, 3)


def test_a_weight_in_a_flat_buffer_is_a_window_at_any_offset():
    """|.....[wwww|wwww|wwww]..|: rows of 4 at offset 5 of 19 elements."""
    flat = base(19)
    found = resolved(flat[5:17].view(3, 4), 19)
    assert found.windowed and (found.flat_start, found.flat_length) == (5, 12)
    assert found.base_shape == found.sizes == (12,) or found.base_shape == (3, 4)
    assert dynamic_bounds(Layout("float32", (19,)), view_of(flat[5:17].view(3, 4))) == (
        (1, 19, 11),
    )


def test_a_window_that_ends_early_is_padded():
    """[3,2] with row stride 3 over the last 8 elements: the third row has no third column."""
    found = resolved(torch.as_strided(base(11), (3, 2), (3, 1), 3), 11)
    assert found.kind == "strided" and found.flat_length + found.padding == 9


def test_overlapping_windows_are_gathered():
    assert resolved(base(10).unfold(0, 4, 2), 10).kind == "gather"
    assert dynamic_bounds(Layout("float32", (10,)), view_of(base(10).unfold(0, 4, 2))) is None


def test_empty_views_read_nothing_and_serve_any_offset():
    view = view_of(base(4, 5)[2:2])
    assert resolve(Layout("float32", (4, 5)), view).inner_shape == (0, 5)
    assert dynamic_bounds(Layout("float32", (4, 5)), view)[0][2] == 0


def test_another_dtype_counts_in_its_own_elements():
    found = resolve(Layout("float32", (4, 6)), view_of(base(4, 6).view(torch.int16)[:, 2:4]))
    assert found.base_shape == (4, 12) and found.starts == (0, 2) and found.reinterprets


def test_dynamic_bounds_say_which_offsets_fit():
    """Rows of a [10,3] data set: any multiple of 3 up to row 6 starts four rows."""
    bounds = dynamic_bounds(Layout("float32", (10, 3)), view_of(base(10, 3)[2:6]))
    assert bounds == ((3, 10, 3), (1, 3, 2))
    valid = [offset for offset in range(30) if fits(bounds, offset)]
    assert valid == [0, 3, 6, 9, 12, 15, 18]


def fits(bounds: tuple[tuple[int, int, int], ...], offset: int) -> bool:
    for stride, size, extent in bounds:
        start, offset = divmod(offset, stride)
        if start + extent >= size:
            return False
    return offset == 0


def test_a_view_outside_its_buffer_is_refused():
    with pytest.raises(ValueError, match=r"float32\[5\] reaches outside its buffer float32\[4\]"):
        resolve(Layout("float32", (4,)), View("float32", (5,), (1,)))
    with pytest.raises(ValueError, match="negative"):
        resolve(Layout("float32", (4,)), View("float32", (2,), (-1,), 3))


def test_a_view_past_a_value_whose_storage_has_grown_serves_its_own_offset_alone() -> None:
    assert dynamic_bounds(Layout("float32", ()), View("float32", (2,), (1,), 0)) is None


def read(layout: Layout, view: View, offset: int) -> np.ndarray:
    """The recipe of ``view``, with new starts for another offset: what a backend does."""
    found, flat = resolve(layout, view), np.arange(layout.nbytes // 4)
    if found.windowed:
        taken = np.append(flat[offset : offset + found.flat_length], np.zeros(found.padding, int))
        assert len(taken) == found.flat_length + found.padding
        starts: list[int] = list(found.starts)
    else:
        taken, starts = flat, []
        for stride in contiguous_strides(found.base_shape):
            start, offset = divmod(offset, stride)
            starts.append(start)
    value = taken.reshape(found.base_shape)
    for dim, (start, size, step) in enumerate(zip(starts, found.sizes, found.steps, strict=True)):
        places = start + np.arange(size) * step
        assert places[-1] < found.base_shape[dim], "XLA would read elsewhere, and say nothing"
        value = value.take(places, axis=dim)
    kept = value.reshape([found.sizes[dim] for dim in sorted(found.axes)])
    value = kept.transpose(found.permutation).reshape(found.inner_shape)
    return np.broadcast_to(value, view.shape)


@st.composite
def moving(draw: st.DrawFn) -> tuple[tuple[int, ...], torch.Tensor]:
    """A layout, and a view of it: slices with steps, perhaps transposed or of flat memory."""
    layout = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    value = torch.arange(torch.Size(layout).numel()).reshape(layout)
    if draw(st.booleans()):
        value = value.view(-1)
    for dim, size in enumerate(value.shape):
        start = draw(st.integers(0, size - 1))
        end = draw(st.integers(start + 1, size))
        value = value[(slice(None),) * dim + (slice(start, end, draw(st.integers(1, 3))),)]
    return layout, value.transpose(0, -1) if draw(st.booleans()) else value


@settings(max_examples=500, deadline=None, derandomize=True)
@given(moving())
def test_every_offset_within_the_bounds_is_read_right(case: tuple[tuple[int, ...], torch.Tensor]):
    layout, tensor = Layout("float32", case[0]), case[1]
    view = View("float32", tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    bounds = dynamic_bounds(layout, view)
    assume(bounds is not None)
    assert bounds is not None and fits(bounds, view.offset)
    flat = torch.arange(layout.nbytes // 4)
    for offset in filter(lambda one: fits(bounds, one), range(len(flat))):
        expected = flat.as_strided(view.shape, view.strides, offset)  # within the memory, or raises
        assert (read(layout, view, offset) == expected.numpy()).all(), (view, offset)
