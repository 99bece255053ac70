"""Reads and writes of random views agree with PyTorch's own strided memory."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from fuse.backends.xla.views import read, write
from fuse.trace.spec import Layout, View
from fuse.trace.views import dynamic_bounds, resolve
from tests.backends.rule_harness import to_array, to_tensor
from tests.trace.test_views import fits, view_of

SETTINGS = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))


def layout_of(tensor: torch.Tensor) -> Layout:
    return Layout(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def strided(storage: torch.Tensor, view: View, offset: int) -> torch.Tensor:
    flat = storage.reshape(-1)
    dtype = getattr(torch, view.dtype)
    if dtype != storage.dtype:
        size = torch.empty((), dtype=dtype).element_size()
        whole = flat.numel() * flat.element_size() // size * size // flat.element_size()
        flat = flat[:whole].view(dtype)
    return torch.as_strided(flat, view.shape, view.strides, offset)


def random_step(draw, x: torch.Tensor) -> torch.Tensor:
    """One view operation that fits ``x``."""
    kinds = ["unsqueeze", "expand", "as_strided", "flatten", "dtype"]
    kinds += ["slice", "select", "transpose", "unfold", "split", "narrow"] if x.dim() else []
    kinds += ["permute", "diagonal"] if x.dim() > 1 else []
    kind = draw(st.sampled_from(kinds))
    dim = draw(st.integers(0, max(x.dim() - 1, 0)))
    size = x.shape[dim] if x.dim() else 1
    if kind == "unsqueeze":
        return x.unsqueeze(draw(st.integers(0, x.dim())))
    if kind == "expand":
        return x.unsqueeze(0).expand(draw(st.integers(1, 3)), *x.shape)
    if kind == "flatten":
        try:
            return x.view(-1)
        except RuntimeError:
            return x
    if kind == "dtype":
        try:
            return x.view(draw(st.sampled_from([torch.int16, torch.int32, torch.float64])))
        except RuntimeError:
            return x
    if kind == "as_strided":
        n = x.untyped_storage().nbytes() // x.element_size()
        stride = draw(st.integers(1, 4))
        count = draw(st.integers(1, max((n - 1) // stride, 1)))
        start = draw(st.integers(0, max(n - 1 - (count - 1) * stride, 0)))
        fitting = n and start + (count - 1) * stride < n
        return x.as_strided((count,), (stride,), start) if fitting else x
    if kind == "slice":
        start, stop = sorted(draw(st.tuples(*[st.integers(0, size)] * 2)))
        step = draw(st.integers(1, 3))
        return x[(slice(None),) * dim + (slice(start, stop, step),)]
    if kind == "narrow":
        start = draw(st.integers(0, max(size - 1, 0)))
        return x.narrow(dim, start, draw(st.integers(0, size - start)))
    if kind == "select":
        return x.select(dim, draw(st.integers(0, size - 1))) if size else x
    if kind == "transpose":
        return x.transpose(dim, draw(st.integers(0, x.dim() - 1)))
    if kind == "permute":
        return x.permute(draw(st.permutations(range(x.dim()))))
    if kind == "diagonal":
        return x.diagonal(draw(st.integers(-1, 1)), 0, x.dim() - 1)
    if kind == "split":
        divisors = [d for d in range(1, size + 1) if size % d == 0] or [1]
        return x.unflatten(dim, (draw(st.sampled_from(divisors)), -1)) if size else x
    window = draw(st.integers(1, max(size, 1)))
    return x.unfold(dim, window, draw(st.integers(1, 3))) if size else x


@st.composite
def views(draw) -> tuple[torch.Tensor, torch.Tensor]:
    """A row-major tensor and a chain of views of it."""
    shape = draw(st.lists(st.integers(1, 6), min_size=0, max_size=4))
    base = torch.arange(1, int(np.prod(shape)) + 1, dtype=torch.int32)
    base = base.view(shape).view(torch.float32).clone()
    x = base
    for _ in range(draw(st.integers(0, 4))):
        if x.dim() < 6:
            x = random_step(draw, x)
    assume(x.numel() < 5000)
    return base, x


def bits(tensor: torch.Tensor) -> np.ndarray:
    return tensor.contiguous().numpy().view(f"u{tensor.element_size()}")


@SETTINGS
@given(views())
def test_reads_agree_with_as_strided(case):
    base, x = case
    with jax.enable_x64(True):
        got = to_tensor(read(to_array(base), layout_of(base), view_of(x)))
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(bits(got), bits(x))


def overlaps(view: View) -> bool:
    indices = torch.arange(10**4).as_strided(view.shape, view.strides, 0).flatten()
    return indices.unique().numel() != indices.numel()


@SETTINGS
@given(views(), st.booleans())
def test_writes_agree_with_copy(case, fresh):
    base, x = case
    view = view_of(x)
    assume(not overlaps(view))
    value = (torch.arange(x.numel()) + 100).to(torch.int32).view(x.shape).to(x.dtype)
    expected = torch.zeros_like(base) if fresh else base.clone()
    strided(expected, view, view.offset).copy_(value)
    with jax.enable_x64(True):
        old = None if fresh else to_array(base)
        got = to_tensor(write(old, layout_of(base), view, to_array(value)))
    assert got.shape == base.shape
    np.testing.assert_array_equal(bits(got), bits(expected))


@SETTINGS
@given(views(), st.data())
def test_dynamic_offsets_read_and_write_the_same_view_elsewhere(case, data):
    base, x = case
    view, layout = view_of(x), layout_of(base)
    bounds = dynamic_bounds(layout, view)
    assume(bounds is not None and x.numel())
    count = base.numel() * base.element_size() // x.element_size()
    valid = [offset for offset in range(count) if fits(bounds, offset)]
    assert view.offset in valid
    offset = data.draw(st.sampled_from(valid))
    with jax.enable_x64(True):
        where = jax.numpy.asarray(offset, "int64")
        reader = jax.jit(lambda b, o: read(b, layout, view, o))
        got = to_tensor(reader(to_array(base), where))
        np.testing.assert_array_equal(bits(got), bits(strided(base, view, offset)))
        if overlaps(view):
            return
        value = torch.full(x.shape, 7, dtype=x.dtype)
        writer = jax.jit(lambda b, v, o: write(b, layout, view, v, o))
        new = to_tensor(writer(to_array(base), to_array(value), where))
    expected = base.clone()
    strided(expected, view, offset).copy_(value)
    np.testing.assert_array_equal(bits(new), bits(expected))


PAIRS = [
    (torch.float32, torch.uint8), (torch.uint8, torch.float32), (torch.complex64, torch.float32),
    (torch.float32, torch.complex64), (torch.float64, torch.complex64),
    (torch.complex128, torch.int16), (torch.bool, torch.uint8), (torch.uint8, torch.bool),
    (torch.bfloat16, torch.float16), (torch.float64, torch.complex128),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=str)
def test_bytes_are_reinterpreted(source, target):
    base = torch.randint(0, 2, (6, 96), dtype=torch.uint8).view(source)
    x = base.view(target)[1:4]
    value = torch.randint(0, 2, (3, 96), dtype=torch.uint8).view(target)
    expected = base.clone()
    expected.view(target)[1:4] = value
    with jax.enable_x64(True):
        got = to_tensor(read(to_array(base), layout_of(base), view_of(x)))
        new = to_tensor(write(to_array(base), layout_of(base), view_of(x), to_array(value)))
    assert torch.equal(got.view(torch.uint8), x.contiguous().view(torch.uint8))
    assert torch.equal(new.view(torch.uint8), expected.view(torch.uint8))


def test_odd_bytes_at_the_end_survive_a_wider_write():
    base = torch.arange(10, dtype=torch.uint8)
    view = View("float32", (2,), (1,))
    with jax.enable_x64(True):
        value = jax.numpy.zeros(2, "float32")
        new = to_tensor(write(to_array(base), layout_of(base), view, value))
    assert new.tolist() == [0] * 8 + [8, 9]


STEPPED = {
    "scattered: a diagonal": ((8, 8), lambda x: x.diagonal(1), 2),
    "scattered: every sixth row": ((12, 5), lambda x: x[1::6], 10),
    "split: even columns": ((4, 6), lambda x: x[:, ::2], 1),
    "split: every other row and third column": ((4, 6), lambda x: x[::2, 1::3], 8),
    "selected: odd columns of five": ((4, 5), lambda x: x[:2, 1::2], 6),
    "selected, fresh window": ((23,), lambda x: x[2:20].view(2, 9)[:, ::2], 4),
}


@pytest.mark.parametrize("name", STEPPED)
def test_writes_with_steps(name):
    shape, make, offset = STEPPED[name]
    base = torch.arange(float(np.prod(shape))).view(shape)
    layout, view = layout_of(base), view_of(make(base))
    value = torch.full(view.shape, -1.0)
    bounds = dynamic_bounds(layout, view)
    assert bounds is not None and fits(bounds, offset) and fits(bounds, view.offset)
    for start in (view.offset, offset):
        expected = base.clone()
        strided(expected, view, start).copy_(value)
        with jax.enable_x64(True):
            where = None if start == view.offset else jax.numpy.asarray(start, "int64")
            assert torch.equal(
                to_tensor(write(to_array(base), layout, view, to_array(value), where)), expected
            )


def operations(function, *args) -> list[str]:
    with jax.enable_x64(True):
        return [e.primitive.name for e in jax.make_jaxpr(function)(*args).eqns]


def test_reads_emit_no_more_than_they_need():
    base = to_array(torch.zeros(4, 6))
    layout = Layout("float32", (4, 6))

    def emitted(x: torch.Tensor) -> list[str]:
        return operations(lambda b: read(b, layout, view_of(x)), base)

    x = torch.zeros(4, 6)
    assert emitted(x) == []
    assert emitted(x.view(24)) == ["reshape"]
    assert emitted(x.t()) == ["transpose"]
    assert emitted(x[1:3]) == ["slice"]
    assert emitted(x[:, 2]) == ["slice", "reshape"]


def test_writes_of_the_whole_buffer_do_not_read_it():
    layout = Layout("float32", (4, 6))
    view = view_of(torch.zeros(4, 6).t())
    assert resolve(layout, view).takes_all
    value = to_array(torch.zeros(6, 4))
    assert operations(lambda v: write(None, layout, view, v), value) == ["transpose"]
