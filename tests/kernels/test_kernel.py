"""A JAX function as an operator: on the device, on the CPU, in every mode and on both backends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.experimental import pallas as pl

import fuse
from fuse.errors import KernelError
from tests.device.helpers import DEVICE, made, mode


@fuse.kernel
def swish(x, w, *, scale=1.0):
    return x * jax.nn.sigmoid(scale * x) * w


def expected(x: torch.Tensor, w: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return x * torch.sigmoid(scale * x) * w


@fuse.kernel
def doubled(x):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2 + pl.program_id(0)

    spec = pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0],),
        in_specs=[spec],
        out_specs=spec,
    )(x)


@fuse.kernel
def layer(batch, params, mask=None, *, activation=jnp.tanh, axes=(0,)):
    hidden = batch["x"] @ params[0] + params[1]
    if mask is not None:
        hidden = jnp.where(mask, hidden, 0)
    return {"hidden": activation(hidden), "rest": (hidden.mean(axes), batch["n"] * 2)}


@fuse.kernel
def parts(x) -> tuple[jax.Array, jax.Array]:
    return x * 2, x.sum(0)


@pytest.fixture
def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 8, generator=generator), torch.randn(8, generator=generator)


@pytest.fixture(params=["xla", "numpy"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    before = fuse.get_backend()
    fuse.set_backend(request.param)
    yield request.param
    fuse.set_backend(before)


def test_it_is_an_operator_with_the_schema_of_its_signature():
    assert str(torch.ops.fuse_kernels.swish.default._schema) == (
        "fuse_kernels::swish(Tensor x, Tensor w, *, float scale=1.) -> Tensor"
    )
    assert str(torch.ops.fuse_kernels.parts.default._schema) == (
        "fuse_kernels::parts(Tensor x) -> (Tensor, Tensor)"
    )
    assert repr(swish) == "<fuse.kernel fuse_kernels::swish" + (
        "(Tensor x, Tensor w, *, float scale=1.0) -> Tensor>"
    )
    assert swish.__name__ == "swish"


@pytest.mark.parametrize("name", ["fused", "strict", "debug"])
def test_every_mode_and_backend_computes_it_the_sixth_time_too(tensors, backend, name):
    x, w = tensors
    with mode(name):
        for step in range(6):
            found = swish(x.to(DEVICE) * step, w.to(DEVICE), scale=0.5) + 1
            torch.testing.assert_close(found.cpu(), expected(x * step, w, 0.5) + 1)
            torch.testing.assert_close(doubled(x.to(DEVICE)).cpu()[1], x[1] * 2 + 1)


def test_it_is_one_operation_of_one_chunk(tensors):
    x, w = (tensor.to(DEVICE) for tensor in tensors)
    explained = fuse.explain(lambda: (swish(x * 2, w) + 1).sum().item(), full=True)
    text = str(explained)
    assert "traces      1   chunks 1" in text
    assert text.count("fuse_kernels::swish(") == 1
    assert "chunk 0: 4 operations" in text
    assert fuse.stats()["host_fallbacks"].get("fuse_kernels::swish", 0) == 0


def test_a_known_call_compiles_nothing(tensors):
    x, w = (tensor.to(DEVICE) for tensor in tensors)
    for scale in (1.0, 2.0, 1.0):
        swish(x, w, scale=scale).cpu()
    before = made()
    for scale in (2.0, 1.0) * 3:
        swish(x, w, scale=scale).cpu()
    assert made() == before


def test_tensors_of_the_cpu_are_computed_there(tensors):
    x, w = tensors
    found = swish(x, w, scale=2)
    assert found.device.type == "cpu"
    torch.testing.assert_close(found, expected(x, w, 2.0))
    assert torch.equal(doubled(x), x * 2 + torch.arange(4.0)[:, None])


@pytest.mark.parametrize("device", ["cpu", DEVICE])
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.complex64],
)
def test_a_dtype_given_is_the_dtype_seen(device, dtype):
    kept = fuse.kernel(lambda x: x + 1, name="fuse_tests::kept")
    x = torch.ones(3).to(dtype).to(device)
    found = kept(x)
    assert found.dtype is dtype
    assert torch.equal(found.cpu(), x.cpu() + 1)


def test_trees_numbers_and_values_that_no_schema_has(tensors, backend):
    x, _ = tensors
    weight, bias = torch.randn(8, 3), torch.randn(3)
    params = [weight.to(DEVICE).requires_grad_(), bias.to(DEVICE)]
    for count in (1, 2, 3, 4.5):
        made = layer({"x": x.to(DEVICE), "n": count}, params)
        torch.testing.assert_close(made["hidden"].detach().cpu(), torch.tanh(x @ weight + bias))
        assert made["rest"][1].item() == 2 * count
        assert made["rest"][0].shape == (3,)
    made["hidden"].sum().backward()
    plain = weight.clone().requires_grad_()
    torch.tanh(x @ plain + bias).sum().backward()
    torch.testing.assert_close(params[0].grad.cpu(), plain.grad)
    mask = x[:, :1] > 0
    made = layer({"x": x.to(DEVICE), "n": 1}, params, mask.to(DEVICE), activation=jax.nn.relu)
    wanted = torch.relu(torch.where(mask, x @ weight + bias, 0))
    torch.testing.assert_close(made["hidden"].detach().cpu(), wanted)


def test_a_number_that_varies_compiles_once():
    scaled = fuse.kernel(lambda x, by: x * by, name="fuse_tests::scaled")
    x = torch.ones(3, device=DEVICE)
    for by in (0.5, 1.5, 2.5):
        scaled(x, by).cpu()
    before = made()
    for by in (3.5, 4.5, -1.0):
        assert scaled(x, by).tolist() == [by] * 3
    assert made() == before
    assert scaled(x, 2).dtype is torch.float32
    assert scaled(x.bfloat16(), 0.5).dtype is torch.bfloat16


def test_several_results(tensors):
    x, _ = tensors
    both, total = parts(x.to(DEVICE))
    torch.testing.assert_close(both.cpu(), x * 2)
    torch.testing.assert_close(total.cpu(), x.sum(0))
    undeclared = fuse.kernel(lambda x: (x, x + 1), name="fuse_tests::undeclared")
    one, two = undeclared(x.to(DEVICE))
    assert torch.equal(one.cpu() + 1, two.cpu())


def test_one_call_without_a_name(tensors):
    x = tensors[0].to(DEVICE)
    for k in (2.0, 3.0, 2.0):
        found = fuse.jax_call(lambda a: a * k, x)  # noqa: B023  (a function anew, which is the point)
        torch.testing.assert_close(found.cpu(), tensors[0] * k)
    before = made()
    for k in (3.0, 2.0, 3.0):
        fuse.jax_call(lambda a: a * k, x).cpu()  # noqa: B023
    assert made() == before
    jitted = fuse.jax_call(jax.jit(jnp.cumsum, static_argnames="axis"), x, axis=1)
    torch.testing.assert_close(jitted.cpu(), tensors[0].cumsum(1))


def test_views_are_read_and_arrays_beside_tensors_are_taken(tensors):
    x, w = tensors
    found = swish(x.to(DEVICE).t(), w.to(DEVICE)[None, 4:].expand(8, 4))
    torch.testing.assert_close(found.cpu(), expected(x.t(), w[None, 4:]))
    added = fuse.kernel(lambda a, b: a + b, name="fuse_tests::added")
    torch.testing.assert_close(added(x.to(DEVICE), np.ones(8, np.float32)).cpu(), x + 1)
    torch.testing.assert_close(added(x.to(DEVICE), jnp.ones(8)).cpu(), x + 1)


def test_a_numpy_function_stands_in_where_there_is_no_xla(tensors):
    told_apart = fuse.kernel(lambda x: x + 4, name="fuse_tests::apart", numpy=lambda x: x + 5)
    x = torch.zeros(3, device=DEVICE)
    assert told_apart(x).tolist() == [4.0] * 3
    assert told_apart(x.cpu()).tolist() == [5.0] * 3
    fuse.set_backend("numpy")
    try:
        assert told_apart(x).tolist() == [5.0] * 3
    finally:
        fuse.set_backend("xla")


def test_autocast_follows_the_policy(tensors):
    lower = fuse.kernel(lambda a, b: a @ b, name="fuse_tests::lower", autocast="lower")
    wide = fuse.kernel(lambda a: a * 2, name="fuse_tests::wide", autocast="float32")
    as_given = fuse.kernel(lambda a: a * 2, name="fuse_tests::as_given")
    x = tensors[0]
    for device in ("cpu", "tpu"):
        given = x.to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            assert lower(given, given.t()).dtype is torch.bfloat16
            assert wide(given.bfloat16()).dtype is torch.float32
            assert as_given(given.bfloat16()).dtype is torch.bfloat16
            assert lower(given.double(), given.t().double()).dtype is torch.float64
        assert lower(given, given.t()).dtype is torch.float32


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_an_error_names_the_kernel_the_shapes_and_both_lines(tensors, device):
    @fuse.kernel(name="fuse_tests::ill")
    def ill(x, w):
        return x @ jnp.ones((5, 5)) + w

    for _ in range(2):
        with pytest.raises(KernelError, match="failed") as caught:
            ill(tensors[0].to(device), tensors[1].to(device))
        text = str(caught.value)
        line = ill.function.__code__.co_firstlineno + 2
        assert f"the kernel failed at {__file__}:{line}: TypeError: dot_general" in text
        assert "operator: fuse_tests::ill(float32[4,8], float32[8])" in text
        assert f"at: {__file__}:{line + 4}" in text


def test_what_cannot_be_a_kernel_is_refused():
    with pytest.raises(KernelError, match="no parameter 'y' to donate"):
        fuse.kernel(donate=("y",))(lambda x: x)
    with pytest.raises(KernelError, match='give name="mylib::name"'):
        fuse.kernel(lambda x: x)
    with pytest.raises(KernelError, match="autocast is 'half'"):
        fuse.kernel(autocast="half", name="fuse_tests::half")(lambda x: x)
    nothing = fuse.kernel(lambda x: jnp.zeros(x), name="fuse_tests::nothing")
    with pytest.raises(KernelError, match="takes at least one tensor"):
        nothing(3)
    with pytest.raises(KernelError, match="give it by keyword"):
        fuse.jax_call(lambda x, n: x.reshape(n, -1), torch.ones(4), 2)
    odd = fuse.kernel(lambda x: x.astype("int4"), name="fuse_tests::odd")
    with pytest.raises(KernelError, match=r"it returns int4\[2\], a dtype PyTorch lacks"):
        odd(torch.ones(2))


def test_another_devices_tensors_are_refused_in_pytorchs_words(tensors):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        swish(tensors[0].to(DEVICE), tensors[1])


def test_kernels_of_one_name_do_not_meet():
    def scaled_by(k: float) -> Any:
        @fuse.kernel
        def times(x):
            return x * k

        return times

    two, three = scaled_by(2.0), scaled_by(3.0)
    x = torch.ones(2, device=DEVICE)
    for _ in range(3):
        assert two(x).tolist() == [2.0, 2.0]
        assert three(x).tolist() == [3.0, 3.0]
    assert two.name != three.name
    first = fuse.kernel(lambda x: x + 1, name="fuse_tests::taken")
    assert first(x).tolist() == [2.0, 2.0]
    pending = first(x)
    second = fuse.kernel(lambda x: x + 2, name="fuse_tests::taken")
    for _ in range(3):
        assert second(x).tolist() == [3.0, 3.0]
        assert first(x).tolist() == [2.0, 2.0]
        assert torch.ops.fuse_tests.taken(x).tolist() == [3.0, 3.0]
    assert pending.tolist() == [2.0, 2.0]
    third = fuse.kernel(lambda x, y: x + y, name="fuse_tests::taken")
    assert third(x, x).tolist() == [2.0, 2.0]


def test_a_kernel_that_calls_back_runs_and_is_not_stored(capfd):
    @fuse.kernel
    def spoken(x):
        jax.debug.print("the sum is {}", x.sum())
        return x + 1

    assert spoken(torch.ones(3, device=DEVICE)).tolist() == [2.0] * 3
    jax.effects_barrier()
    assert "the sum is 3.0" in capfd.readouterr().out
