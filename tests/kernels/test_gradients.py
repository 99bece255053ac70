"""Gradients and batches of kernels: JAX's own and the user's, of any order, under torch.func."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
import torch
from jax.experimental import pallas as pl
from torch.autograd import forward_ad

import fuse
from fuse.errors import KernelError
from tests.device.helpers import DEVICE
from tests.marks import slow_but


@fuse.kernel(name="fuse_tests::gated")
def gated(x, w, *, scale=1.0):
    return x * jax.nn.sigmoid(scale * x) * w


@fuse.kernel(name="fuse_tests::twisted")
def twisted(x, table, index):
    rows = table[index]
    return {"product": x * rows, "index": index + 1, "norm": jnp.sqrt((x**2).sum() + 1)}


def square(x):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] ** 2

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def square_gradient(inputs, outputs, grads):
    (x,) = inputs
    return 2 * x * grads


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_gradcheck(device):
    x = torch.randn(2, 3, dtype=torch.float64, device=device, requires_grad=True)
    w = torch.randn(3, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: gated(a, b, scale=0.7), (x, w))
    assert torch.autograd.gradcheck(lambda a: gated(a, w.detach()), (x,))


def test_gradients_of_gradients():
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(gated, (x, w))
    on_device = [tensor.detach().to(DEVICE).requires_grad_() for tensor in (x, w)]
    (first,) = torch.autograd.grad(gated(*on_device).sum(), on_device[0], create_graph=True)
    (second,) = torch.autograd.grad(first.pow(2).sum(), on_device[1])
    (first,) = torch.autograd.grad((x * x.sigmoid() * w).sum(), x, create_graph=True)
    (wanted,) = torch.autograd.grad(first.pow(2).sum(), w)
    torch.testing.assert_close(second.cpu(), wanted)


def test_complex_numbers_follow_pytorchs_convention():
    twice = fuse.kernel(lambda z: z * (2 + 1j) + z.real, name="fuse_tests::complex")
    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(twice, (z,))


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_trees_with_integers_in_and_out(device):
    x = torch.randn(2, 3, dtype=torch.float64, device=device, requires_grad=True)
    table = torch.randn(5, 3, dtype=torch.float64, device=device, requires_grad=True)
    index = torch.tensor([4, 1], device=device)
    made = twisted(x, table, index)
    assert not made["index"].requires_grad
    assert made["index"].tolist() == [5, 2]
    (made["product"].sum() + made["norm"]).backward()
    other = [tensor.detach().cpu().requires_grad_() for tensor in (x, table)]
    wanted = (other[0] * other[1][[4, 1]]).sum() + torch.sqrt((other[0] ** 2).sum() + 1)
    wanted.backward()
    torch.testing.assert_close(x.grad.cpu(), other[0].grad)
    torch.testing.assert_close(table.grad.cpu(), other[1].grad)


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_a_gradient_of_the_users_own(device):
    asked = []

    def gradient(inputs, outputs, grads, *, scale):
        asked.append(scale)
        tree, w = inputs
        return {"x": 3 * tree["x"], "b": None}, (grads["y"] * outputs["y"]).sum(0) * 0 + 7

    @fuse.kernel(gradient=gradient, name="fuse_tests::owned")
    def owned(tree, w, *, scale=2.0):
        return {"y": tree["x"] * w * scale + tree["b"]}

    x = torch.ones(2, 3, device=device, requires_grad=True)
    w = torch.ones(3, device=device, requires_grad=True)
    b = torch.ones(3, device=device)
    owned({"x": x, "b": b}, w)["y"].sum().backward()
    assert asked
    assert torch.equal(x.grad.cpu(), torch.full((2, 3), 3.0))
    assert torch.equal(w.grad.cpu(), torch.full((3,), 7.0))


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_a_pallas_kernel_needs_a_gradient_of_its_own(device):
    without = fuse.kernel(square, name="fuse_tests::square")
    own = fuse.kernel(square, name="fuse_tests::own_square", gradient=square_gradient)
    x = torch.tensor([1.0, -3.0], device=device, requires_grad=True)
    found = without(x)  # an error of the backward pass is raised there
    assert found.tolist() == [1.0, 9.0]
    with pytest.raises(KernelError, match="give fuse.kernel a gradient=, or wrap"):
        found.sum().backward()
    own(x).sum().backward()
    assert x.grad.tolist() == [2.0, -6.0]

    @jax.custom_vjp
    def custom(x):
        return square(x)

    custom.defvjp(lambda x: (square(x), x), lambda x, g: (2 * x * g,))
    wrapped = fuse.kernel(custom, name="fuse_tests::custom")
    x.grad = None
    wrapped(x).sum().backward()
    assert x.grad.tolist() == [2.0, -6.0]


def test_only_what_the_gradient_reads_is_kept():
    turned = fuse.kernel(lambda x, by: x * jnp.cos(by), name="fuse_tests::turned")
    x = torch.randn(3, device=DEVICE, requires_grad=True)
    by = torch.randn(3, device=DEVICE)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        turned(x, by)
    assert len(kept) == 1
    assert kept[0] is by or torch.equal(kept[0], by)


def test_backward_joins_the_chunk_of_the_forward_pass():
    x = torch.randn(4, 4, device=DEVICE, requires_grad=True)
    w = torch.randn(4, device=DEVICE, requires_grad=True)

    def step():
        loss = gated(x, w).sum()
        loss.backward()
        return loss.item()

    for _ in range(6):
        x.grad = w.grad = None
        explained = str(fuse.explain(step, full=True))
    assert "traces      1   chunks 1" in explained
    assert "fuse_tests::gated_backward" in explained
    plain = [tensor.detach().cpu().requires_grad_() for tensor in (x, w)]
    (plain[0] * plain[0].sigmoid() * plain[1]).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), plain[0].grad)
    torch.testing.assert_close(w.grad.cpu(), plain[1].grad)


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_transforms_of_torch_func(device):
    x, w = torch.randn(4, 3), torch.randn(3)

    def reference(x, w):
        return x * x.sigmoid() * w

    def same(transform, *given):
        found = transform(gated)(*(tensor.to(device) for tensor in given))
        torch.testing.assert_close(found.cpu(), transform(reference)(*given))

    same(lambda f: torch.vmap(f, (0, None)), x, w)
    found = torch.vmap(torch.ops.fuse_tests.gated, (0, None))(x.to(device), w.to(device))
    torch.testing.assert_close(found.cpu(), reference(x, w))
    same(lambda f: torch.vmap(f, (1, None), 1), x.t().contiguous(), w)
    same(lambda f: torch.vmap(torch.vmap(f, (0, None)), (None, 0)), x, torch.stack([w, 2 * w]))
    same(lambda f: torch.func.grad(lambda x, w: f(x, w).sum()), x, w)
    same(lambda f: torch.vmap(torch.func.grad(lambda x, w: f(x, w).sum()), (0, None)), x, w)
    same(lambda f: torch.func.jacrev(f, 1), x, w)
    same(lambda f: torch.func.jacrev(torch.func.jacrev(lambda x, w: f(x, w).sum())), x, w)


def test_a_batch_keeps_the_gradient_outside_it():
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: torch.vmap(gated, (0, None))(x, w), (x, w))
    made = torch.vmap(lambda x: twisted(x, w[None], torch.zeros((), dtype=torch.int64))["product"])
    torch.testing.assert_close(made(x), x * w)


@fuse.kernel(
    name="fuse_tests::scaled_gradient",
    gradient=lambda inputs, outputs, grads: (10 * inputs[0] * grads["square"], None),
)
def scaled_gradient(x, count):
    return {"count": count + 1, "square": x * x}


@pytest.mark.parametrize("device", slow_but([DEVICE], ["cpu", DEVICE]))
@pytest.mark.parametrize("dims", [None, (0, 0), (1, 0), (None, 0)])
def test_transforms_use_the_gradient_that_was_given(device, dims):
    x = torch.arange(9.0, device=device).view(3, 3)
    count = torch.arange(3, device=device)
    function = scaled_gradient if dims is None else torch.vmap(scaled_gradient, dims)
    found = torch.func.grad(lambda x: function(x, count)["square"].sum())(x)
    torch.testing.assert_close(found, 10 * x * (3 if dims == (None, 0) else 1))
    kept = x.clone().requires_grad_()
    function(kept, count)["square"].sum().backward()
    torch.testing.assert_close(kept.grad, found)


@pytest.mark.parametrize("device", slow_but([DEVICE], ["cpu", DEVICE]))
def test_forward_mode_differentiation(device):
    x, w = torch.randn(4, 3, device=device), torch.randn(3, device=device)
    given = (x, w), (torch.randn(4, 3, device=device), torch.randn(3, device=device))

    def reference(x, w):
        return x * x.sigmoid() * w

    for _ in range(3):
        for found, wanted in zip(
            torch.func.jvp(gated, *given), torch.func.jvp(reference, *given), strict=True
        ):
            torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(
            torch.func.jacfwd(gated, 1)(x, w), torch.func.jacfwd(reference, 1)(x, w)
        )
    torch.testing.assert_close(
        torch.func.hessian(lambda x: gated(x, w).sum())(x),
        torch.func.hessian(lambda x: reference(x, w).sum())(x),
    )
    with forward_ad.dual_level():
        made = forward_ad.unpack_dual(gated(forward_ad.make_dual(x, given[1][0]), w))
    _, wanted = torch.func.jvp(lambda x: reference(x, w), (x,), (given[1][0],))
    torch.testing.assert_close(made.tangent, wanted)
    # What has no derivative has no tangent either.
    index = torch.tensor(1, device=device)
    values, tangents = torch.func.jvp(
        lambda x: twisted(x, torch.stack([w, 2 * w]), index), (x[0],), (x[1],)
    )
    torch.testing.assert_close(tangents["product"], x[1] * 2 * w)
    assert values["index"].item() == 2 and not tangents["index"].any()


@pytest.mark.refused
def test_a_kernel_without_tangents_says_so():
    squared = jax.custom_vjp(lambda x: x * x)
    squared.defvjp(lambda x: (x * x, x), lambda x, grad: (2 * x * grad,))
    kernel = fuse.kernel(lambda x: squared(x), name="fuse_tests::only_backward")
    x = torch.ones(4, device=DEVICE)
    with pytest.raises(RuntimeError, match=r"custom_vjp function(.*\n)+.*only_backward"):
        torch.func.jvp(kernel, (x,), (x,))[1].tolist()
