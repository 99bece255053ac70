"""Tensors as JAX arrays and back, and DLPack in both directions: what is shared, and what stops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import fuse
from fuse.errors import KernelError
from tests.device.helpers import DEVICE

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.bool,
    torch.uint8,
    torch.complex64,
    torch.float8_e4m3fn,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("device", ["cpu", DEVICE], ids=str)
def test_there_and_back_in_every_dtype(dtype, device):
    plain = torch.tensor([[0, 1, 2], [3, 0, 5]]).to(dtype)
    array = fuse.to_jax(plain.to(device))
    assert isinstance(array, jax.Array)
    assert (str(array.dtype), array.shape) == (str(dtype).removeprefix("torch."), (2, 3))
    back = fuse.from_jax(array, device=device)
    assert (back.dtype, back.device.type) == (dtype, torch.device(device).type)
    assert torch.equal(back.cpu().view(torch.uint8), plain.view(torch.uint8))


def test_nothing_is_copied_where_a_tensor_is_all_of_its_memory():
    x = torch.randn(4, 3, device=DEVICE) + 1
    array = fuse.to_jax(x)
    assert fuse.to_jax(x) is array
    assert fuse.to_jax(x.view(3, 4)).shape == (3, 4)
    y = fuse.from_jax(array)
    assert fuse.to_jax(y) is array
    own = jnp.arange(6.0)
    assert fuse.to_jax(fuse.from_jax(own)) is own
    pointer = own.unsafe_buffer_pointer()
    assert fuse.from_jax(own).cpu().data_ptr() != pointer  # cpu() is a copy
    assert torch.from_dlpack(fuse.from_jax(own)).data_ptr() == pointer


def test_parts_and_other_orders_are_copied():
    x = torch.arange(12.0).reshape(3, 4)
    given = x.to(DEVICE)
    for view in (lambda t: t[1:], lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[0, 0],
                 lambda t: t.expand(2, 3, 4), lambda t: t[:0]):  # fmt: skip
        np.testing.assert_array_equal(fuse.to_jax(view(given)), view(x).numpy())
    np.testing.assert_array_equal(fuse.to_jax(torch.empty(0, 3, device=DEVICE)).shape, (0, 3))
    assert fuse.to_jax(torch.empty(2, device=DEVICE)).shape == (2,)
    z = torch.randn(3, dtype=torch.complex64)
    np.testing.assert_array_equal(fuse.to_jax(z.to(DEVICE).conj()), z.conj().resolve_conj())


def test_an_array_keeps_its_value_whatever_becomes_of_the_tensor():
    """Writes in place, donation on known streams, updates of optimizers."""
    x = torch.ones(64, 64, device=DEVICE)
    taken = []
    for step in range(8):
        x.mul_(2)
        x.sum().item()
        taken.append((2.0 ** (step + 1), fuse.to_jax(x)))
        x.add_(0)
    for value, array in taken:
        assert (np.asarray(array) == value).all()
    weights = [torch.nn.Parameter(torch.ones(8, device=DEVICE)) for _ in range(6)]
    optimizer = torch.optim.AdamW(weights, lr=0.1)
    before = None
    for _ in range(8):
        for weight in weights:
            weight.grad = torch.ones(8, device=DEVICE)
        optimizer.step()
        value = weights[2].detach().cpu().clone()
        if before is not None:
            np.testing.assert_array_equal(before[0], before[1])
        before = fuse.to_jax(weights[2].detach()), value.numpy()


def test_an_adopted_array_never_changes():
    array = jnp.arange(4.0)
    x = fuse.from_jax(array)
    for _ in range(6):
        x.mul_(2)
        x.sum().item()
    assert x.tolist() == [0.0, 64.0, 128.0, 192.0]
    assert array.tolist() == [0.0, 1.0, 2.0, 3.0]
    kept = fuse.from_jax(array)
    del array
    assert (kept + 1).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_arrays_of_any_kind_are_taken():
    weak = jnp.asarray(3.0)
    assert weak.aval.weak_type
    assert (fuse.from_jax(weak) * torch.ones(2, device=DEVICE)).tolist() == [3.0, 3.0]
    mesh = Mesh(np.array(jax.local_devices()[:1]), "x")
    laid = jax.device_put(jnp.arange(4.0), NamedSharding(mesh, PartitionSpec("x")))
    assert (fuse.from_jax(laid) + 1).tolist() == [1.0, 2.0, 3.0, 4.0]
    pinned = jax.device_put(jnp.arange(2.0), laid.sharding.with_memory_kind("pinned_host"))
    assert (fuse.from_jax(pinned) + 1).tolist() == [1.0, 2.0]


def test_autograd_ends_and_says_so():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"Use fuse.to_jax\(tensor.detach\(\)\)"):
        fuse.to_jax(x)
    with pytest.raises(BufferError, match="require gradient"):
        torch.from_dlpack(x)
    assert not fuse.from_jax(fuse.to_jax(x.detach())).requires_grad


def test_what_is_no_array_with_a_value_is_refused():
    with pytest.raises(TypeError, match="takes a jax.Array that has a value"):
        fuse.from_jax(np.ones(3))
    with pytest.raises(TypeError, match="takes a jax.Array that has a value"):
        jax.jit(fuse.from_jax)(jnp.ones(3))
    with pytest.raises(KernelError, match="PyTorch has no dtype int4"):
        fuse.from_jax(jnp.ones(2, "int4"))
    with pytest.raises(KernelError, match="PyTorch has no dtype key<fry>"):
        fuse.from_jax(jax.random.key(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_dlpack_in_both_directions(dtype):
    plain = torch.tensor([[0, 1], [1, 0]]).to(dtype)
    x = plain.to(DEVICE) * 1
    assert torch.equal(torch.from_dlpack(x), plain)
    assert fuse.to_jax(x) is not None
    other = jax.dlpack.from_dlpack(x)
    assert torch.equal(torch.from_dlpack(other), plain)
    if dtype is not torch.bfloat16:
        np.testing.assert_array_equal(np.from_dlpack(x), plain.numpy())
    assert torch.equal(torch.from_dlpack(fuse.to_jax(x)), plain)
    assert torch.from_dlpack(x.t()).tolist() == plain.t().tolist()


def test_dlpack_shares_memory_and_the_device_leaves_it_alone():
    x = torch.ones(1024, device=DEVICE) * 3
    shared = torch.from_dlpack(x)
    assert shared.data_ptr() == fuse.to_jax(x).unsafe_buffer_pointer()
    for _ in range(6):
        x.add_(1)
        x.sum().item()
    assert (shared == 3).all()


def test_the_numpy_backend_copies():
    fuse.set_backend("numpy")
    try:
        x = torch.arange(3.0, device=DEVICE)
        array = fuse.to_jax(x)
        assert array.tolist() == [0.0, 1.0, 2.0]
        x.add_(1)
        assert array.tolist() == [0.0, 1.0, 2.0]
        assert (fuse.from_jax(array) * 2).tolist() == [0.0, 2.0, 4.0]
        assert torch.from_dlpack(x).tolist() == [1.0, 2.0, 3.0]
        after = fuse.from_jax(array)
    finally:
        fuse.set_backend("xla")
    assert fuse.to_jax(x).tolist() == [1.0, 2.0, 3.0]
    assert (after + 1).tolist() == [1.0, 2.0, 3.0]


def test_the_older_function_of_dlpack_gives_out_what_can_be_read():
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    for give in (torch.utils.dlpack.to_dlpack, torch.to_dlpack):
        assert torch.from_dlpack(give(x * 1)).tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        assert torch.from_dlpack(give(torch.ones(2))).tolist() == [1.0, 1.0]
        with pytest.raises(BufferError, match="require gradient"):
            give(torch.ones(2, device=DEVICE, requires_grad=True))
