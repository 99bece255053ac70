"""Kernels that overwrite an argument, and say so in their schema."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
import torch

import fuse
from fuse.errors import KernelError
from tests.device.helpers import DEVICE, mode


@fuse.kernel(donate=("x",), name="fuse_tests::scale_")
def scale_(x, w):
    return x * w


@fuse.kernel(donate=("state",), name="fuse_tests::advance_")
def advance_(state, x):
    return {"total": x.sum(), "state": {"count": state["count"] + 1, "mean": state["mean"] + x}}


@pytest.fixture(params=["cpu", DEVICE], ids=str)
def device(request: pytest.FixtureRequest) -> object:
    return request.param


def test_the_schema_says_it():
    schema = str(torch.ops.fuse_tests.scale_.default._schema)
    assert schema == "fuse_tests::scale_(Tensor(a!) x, Tensor w) -> ()"


@pytest.mark.parametrize("name", ["fused", "strict", "debug"])
def test_the_tensor_holds_the_result_and_is_what_is_returned(device, name):
    with mode(name):
        for step in range(6):
            x, w = torch.randn(3, 4), torch.randn(4)
            given = x.to(device, copy=True)
            view, before = given[0], given._version
            made = scale_(given, w.to(device))
            assert made is given
            assert given._version > before
            torch.testing.assert_close(given.cpu(), x * w)
            torch.testing.assert_close(view.cpu() + step, (x * w)[0] + step)


def test_a_part_is_overwritten_in_place(device):
    x, w = torch.randn(5, 4), torch.randn(4)
    given = x.to(device, copy=True)
    for _ in range(6):
        scale_(given[1:3], w.to(device))
        x[1:3] *= w
        torch.testing.assert_close(given.cpu(), x)


def test_trees_of_which_a_part_is_overwritten(device):
    state = {"mean": torch.zeros(3, device=device), "count": torch.tensor(0, device=device)}
    for step in range(1, 7):
        made = advance_(state, torch.ones(3, device=device))
        assert made["state"]["mean"] is state["mean"]
        assert made["total"].item() == 3
        assert state["count"].item() == step
        assert state["mean"].tolist() == [step] * 3


def test_autograd_sees_the_write(device):
    x = torch.randn(3, 4, device=device, requires_grad=True)
    w = torch.randn(4, device=device)
    hidden = x * 1
    scale_(hidden, w)
    hidden.sum().backward()
    torch.testing.assert_close(x.grad.cpu(), w.cpu().expand(3, 4))
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        scale_(x, w)
    squared = (x * 1).square()
    kept = squared.exp()
    scale_(kept, w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.sum().backward()


def test_a_gradient_that_would_read_what_is_gone_is_refused_before_the_write(device):
    x = torch.randn(3, 4, device=device)
    hidden, w = x.clone(), torch.randn(4, device=device, requires_grad=True)
    with pytest.raises(KernelError, match="reads argument 0, which it overwrites"):
        scale_(hidden, w)
    assert torch.equal(hidden, x)


def test_what_no_result_can_replace_is_refused(device):
    shrink = fuse.kernel(lambda x: x[:1], donate=("x",), name="fuse_tests::shrink")
    with pytest.raises(KernelError, match=r"argument 0, float32\[3\], is donated and no result"):
        shrink(torch.ones(3, device=device))


def test_batches(device):
    x, w = torch.randn(3, 4), torch.randn(4)
    given = x.to(device, copy=True)
    torch.vmap(scale_, (1, 0), 1)(given, w.to(device))
    torch.testing.assert_close(given.cpu(), x * w)
    row, operator = given[0].clone(), torch.ops.fuse_tests.scale_
    with pytest.raises(RuntimeError, match="vmap: inplace .* is not possible"):
        torch.vmap(scale_, (None, 0))(row, given)
    torch.vmap(operator, (1, 0), None)(given, w.to(device))
    torch.testing.assert_close(given.cpu(), x * w * w)
    with pytest.raises(KernelError, match="vmap: .* overwrites argument 0"):
        torch.vmap(operator, (None, 0), None)(row, given)


def test_a_constant_may_take_the_place_of_a_donated_tensor(device):
    filled = fuse.kernel(lambda x: jnp.full_like(x, 7), donate=("x",), name="fuse_tests::fill_")
    x = torch.ones(3, device=device)
    filled(x)
    assert x.tolist() == [7.0] * 3
