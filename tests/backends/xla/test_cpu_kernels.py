"""Convolutions, products, norms and attention that PyTorch's CPU kernels do inside XLA."""

from __future__ import annotations

import sys

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import fuse
from fuse.backends.xla.backend import create
from fuse.backends.xla.cpu import kernels
from fuse.backends.xla.platform import Platform
from tests.device.helpers import DEVICE, finish, mode, note_kernels, start

CASES = {
    "2d": (F.conv2d, (8, 16, 24, 24), (32, 16, 3, 3), {"padding": 1}),
    "2d, strided and dilated": (
        F.conv2d, (4, 16, 40, 40), (64, 16, 3, 3), {"stride": 2, "padding": 2, "dilation": 2},
    ),
    "groups": (F.conv2d, (4, 32, 32, 32), (64, 16, 3, 3), {"groups": 2}),
    "one sample": (F.conv2d, (1, 32, 40, 40), (32, 32, 3, 3), {}),
    "odd batch": (F.conv2d, (3, 16, 32, 32), (32, 16, 3, 3), {}),
    "1d": (F.conv1d, (4, 64, 500), (32, 64, 5), {"padding": 2}),
    "3d": (F.conv3d, (2, 8, 12, 12, 12), (16, 8, 3, 3, 3), {"padding": 1}),
    "transposed": (
        F.conv_transpose2d, (4, 32, 20, 20), (32, 24, 3, 3), {"stride": 2, "output_padding": 1},
    ),
}  # fmt: skip


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that programs compiled from now on call."""
    return note_kernels(monkeypatch, "call")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("chosen", ["strict", "fused"])
def test_values_and_gradients_are_those_of_the_cpu(case: str, chosen: str):
    fuse.reset_stats()
    function, x_shape, weight_shape, options = CASES[case]
    x, weight = torch.randn(x_shape), torch.randn(weight_shape)

    def run(device: torch.device) -> list[torch.Tensor]:
        own = [value.clone().to(device).requires_grad_() for value in (x, weight)]
        out = function(*own, **options)
        (out * out).mean().backward()
        return [out.detach().cpu(), *(value.grad.cpu() for value in own)]

    expected = run(torch.device("cpu"))
    with mode(chosen):
        for _ in range(3):  # the known stream too
            for found, wanted in zip(run(DEVICE), expected, strict=True):
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert fuse.stats()["host_fallbacks"] == {}


@pytest.mark.skipif(create().platform.name != "cpu", reason="other platforms have convolutions")
@pytest.mark.parametrize("dims, large", [(1, 1369), (2, 37), (3, 11)])
def test_large_convolutions_call_the_kernels_and_small_ones_do_not(
    dims: int, large: int, calls: list[str]
):
    convolve = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    for size, wanted in ((large, {"convolution", "convolution_gradient"}), (5, set())):
        calls.clear()
        sizes, kernel = (size,) * dims, (3,) * dims
        x = torch.randn(5, 19, *sizes, device=DEVICE, requires_grad=True)
        weight = torch.randn(23, 19, *kernel, device=DEVICE, requires_grad=True)
        convolve(x, weight).sum().backward()
        assert x.grad is not None
        x.grad.sum().item()
        assert set(calls) == wanted


PRODUCTS = {
    "weights' gradient": ((700, 130), (700, 90)),
    "more columns than rows": ((300, 40), (300, 500)),
    "batch": ((24, 60, 64), (24, 60, 70)),
    "one matrix in a batch": ((1, 200, 100), (1, 200, 120)),
}
"""Shapes of x and y in x^T @ y."""


@pytest.mark.skipif(create().platform.name != "cpu", reason="other platforms have products")
@pytest.mark.parametrize("case", PRODUCTS)
@pytest.mark.parametrize("chosen", ["strict", "fused"])
def test_products_of_a_transposed_left_operand(case: str, chosen: str, calls: list[str]):
    x_shape, y_shape = PRODUCTS[case]
    x, y = torch.randn(x_shape), torch.randn(y_shape)
    expected = x.mT @ y
    with mode(chosen):
        dx, dy = x.to(DEVICE), y.to(DEVICE)
        lying = y.mT.contiguous().to(DEVICE).mT  # transposed in memory too
        for _ in range(3):
            torch.testing.assert_close((dx.mT @ dy).cpu(), expected, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close((dx.mT @ lying).cpu(), expected, rtol=1e-4, atol=1e-4)
            # The transpose of something computed in the same program.
            torch.testing.assert_close(((dx * 2).mT @ dy).cpu(), expected * 2, rtol=1e-4, atol=1e-4)
    assert "product" in calls


@pytest.mark.skipif(create().platform.name != "cpu", reason="other platforms have products")
@pytest.mark.parametrize("chosen", ["strict", "fused"])
def test_products_of_a_linear_layer(chosen: str, calls: list[str]):
    x, weight, bias = torch.randn(310, 130), torch.randn(90, 130), torch.randn(90)
    with mode(chosen):
        dx, dw, db = (value.to(DEVICE) for value in (x, weight, bias))
        for _ in range(3):
            found = F.linear(dx, dw, db).cpu()
            torch.testing.assert_close(found, F.linear(x, weight, bias), rtol=1e-4, atol=1e-4)
            found = (dx @ (dw * 2).mT).cpu()
            torch.testing.assert_close(found, x @ weight.mT * 2, rtol=1e-4, atol=1e-4)
    assert "product" in calls


NORMS = {
    "rows": ((4, 128, 96), (96,)),
    "two dimensions": ((9, 30, 16, 32), (16, 32)),
    "one row": ((40000,), (40000,)),
    "fewer rows than threads' shares": ((3, 20000), (20000,)),
}
"""Shapes of the input, and of what is normalised."""


@pytest.mark.skipif(create().platform.name != "cpu", reason="other platforms have norms")
@pytest.mark.parametrize("case", NORMS)
@pytest.mark.parametrize("affine", ["weight and bias", "weight", "nothing"])
@pytest.mark.parametrize("chosen", ["strict", "fused"])
def test_layer_norm_and_its_gradients(case: str, affine: str, chosen: str, calls: list[str]):
    shape, inside = NORMS[case]
    x, given = torch.randn(shape) * 2 + 3, [torch.randn(inside) for _ in affine.split(" and ")]
    given = [] if affine == "nothing" else given

    def run(device: torch.device) -> list[torch.Tensor]:
        own = [value.clone().to(device).requires_grad_() for value in (x, *given)]
        out = F.layer_norm(own[0], inside, *own[1:])
        (out * out * out).mean().backward()
        return [out.detach().cpu(), *(value.grad.cpu() for value in own)]

    expected = run(torch.device("cpu"))
    with mode(chosen):
        for _ in range(3):
            for found, wanted in zip(run(DEVICE), expected, strict=True):
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert set(calls) == {"layer_norm", *(["layer_norm_gradient"] if given else [])}


@pytest.mark.skipif(create().platform.name != "cpu", reason="other platforms have norms")
def test_other_norms_stay_in_xla(calls: list[str]):
    for x in (torch.randn(30, 40), torch.randn(300, 400, dtype=torch.float64)):
        found = F.layer_norm(x.to(DEVICE), x.shape[1:]).cpu()
        torch.testing.assert_close(found, F.layer_norm(x, x.shape[1:]), rtol=1e-4, atol=1e-4)
    assert calls == []


@pytest.mark.skipif(create().platform.name != "cpu", reason="other platforms have products")
def test_other_products_stay_in_xla(calls: list[str]):
    x, y = torch.randn(310, 130), torch.randn(130, 90)
    dx, dy = x.to(DEVICE), y.to(DEVICE)
    small = torch.randn(31, 9)
    for left, right in ((x, y), (x[:, ::2], y[::2])):
        dl, dr = (dx, dy) if left is x else (dx[:, ::2], dy[::2])
        torch.testing.assert_close((dl @ dr).cpu(), left @ right, rtol=1e-4, atol=1e-4)
    found = (small.to(DEVICE).mT @ small.to(DEVICE)).cpu()
    torch.testing.assert_close(found, small.mT @ small, rtol=1e-4, atol=1e-4)
    assert calls == []


ATTENTION = {
    "heads inside": ((3, 70, 4, 32), (3, 70, 4, 32), True),
    "more keys": ((2, 40, 6, 16), (2, 300, 6, 16), False),
    "more queries than keys": ((2, 300, 6, 16), (2, 40, 6, 16), True),
    "one sample": ((1, 128, 8, 64), (1, 128, 8, 64), True),
    "odd sizes": ((5, 67, 3, 33), (5, 67, 3, 33), True),
}
"""Shapes [B, L, H, E] of the query and of key and value, and whether it is causal."""


@pytest.mark.skipif(create().platform.name != "cpu", reason="other platforms have their own")
@pytest.mark.parametrize("case", ATTENTION)
@pytest.mark.parametrize("lie", ["heads inside", "row-major", "width outside"])
@pytest.mark.parametrize("chosen", ["strict", "fused"])
def test_attention_and_its_gradients(case: str, lie: str, chosen: str, calls: list[str]):
    query_shape, key_shape, causal = ATTENTION[case]
    operands = [torch.randn(shape) for shape in (query_shape, key_shape, key_shape)]

    def run(device: torch.device) -> list[torch.Tensor]:
        own = [value.clone().to(device).requires_grad_() for value in operands]
        heads = [value.transpose(1, 2) for value in own]
        if lie == "row-major":
            heads = [value.contiguous() for value in heads]
        elif lie == "width outside":
            heads = [value.mT.contiguous().mT for value in heads]
        out = F.scaled_dot_product_attention(*heads, is_causal=causal, scale=0.2)
        (out * out).sum().backward()
        return [out.detach().cpu(), *(value.grad.cpu() for value in own)]

    expected = run(torch.device("cpu"))
    with mode(chosen):
        for _ in range(3):
            for found, wanted in zip(run(DEVICE), expected, strict=True):
                # With rows in pieces PyTorch takes another kernel on the CPU.
                assert found.stride() == wanted.stride() or lie == "width outside"
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert set(calls) == {"attention", "attention_gradient"}


BIASES = {
    "truth values": lambda: torch.rand(3, 1, 70, 90) > 0.3,
    "padding": lambda: torch.rand(3, 1, 1, 90) > 0.3,
    "of a head": lambda: torch.randn(1, 8, 70, 90),
    "two dimensions": lambda: torch.randn(70, 90),
    "queries that see nothing": lambda: torch.randn(3, 8, 70, 90).masked_fill(
        torch.rand(3, 1, 70, 1) > 0.8, -torch.inf
    ),
    "none": lambda: None,
}


@pytest.mark.skipif(create().platform.name != "cpu", reason="other platforms have their own")
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("groups", [8, 2, 1])
@pytest.mark.parametrize("chosen", ["strict", "fused"])
def test_attention_with_a_bias_and_with_grouped_heads(
    bias: str, groups: int, chosen: str, calls: list[str]
):
    torch.manual_seed(0)
    mask = BIASES[bias]()
    shapes = ((3, 8, 70, 32), (3, groups, 90, 32), (3, groups, 90, 32))
    operands = [torch.randn(shape) for shape in shapes]

    def run(device: torch.device) -> list[torch.Tensor]:
        own = [value.clone().to(device).requires_grad_() for value in operands]
        on = None if mask is None else mask.to(device)
        out = F.scaled_dot_product_attention(*own, on, enable_gqa=groups != 8)
        (out * out).sum().backward()
        return [out.detach().cpu(), *(value.grad.cpu() for value in own)]

    expected = run(torch.device("cpu"))
    with mode(chosen):
        for _ in range(2):
            for found, wanted in zip(run(DEVICE), expected, strict=True):
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert set(calls) == {"attention", "attention_gradient"}


@pytest.mark.skipif(create().platform.name != "cpu", reason="other platforms have their own")
def test_slices_of_a_projection_are_passed_as_they_lie(monkeypatch: pytest.MonkeyPatch):
    shapes = []
    call = kernels.call

    def noted(target: str, results: object, *values: jax.Array, **attributes: object) -> object:
        shapes.append([value.shape for value in values])
        return call(target, results, *values, **attributes)  # type: ignore[arg-type]

    monkeypatch.setattr(kernels, "call", noted)
    projected = torch.randn(4, 64, 3 * 128, device=DEVICE)
    heads = [part.view(4, 64, 4, 32).transpose(1, 2) for part in projected.split(128, 2)]
    F.scaled_dot_product_attention(*heads).sum().item()
    # The last one, for a bias, is read by none. Two calls where the rule is tried before its use.
    assert shapes in ([[(4, 64, 384)] * 4], [[(4, 64, 384)] * 4] * 2)


@pytest.mark.skipif(create().platform.name != "cpu", reason="other platforms have their own")
def test_the_gradient_of_a_bias_is_made_by_xla(calls: list[str]):
    query, mask = torch.randn(4, 4, 64, 32), torch.randn(64, 64)

    def run(device: torch.device) -> torch.Tensor:
        bias = mask.clone().to(device).requires_grad_()
        x = query.to(device)
        F.scaled_dot_product_attention(x, x, x, bias).square().sum().backward()
        return bias.grad.cpu()

    torch.testing.assert_close(run(DEVICE), run(torch.device("cpu")), rtol=1e-4, atol=1e-4)
    assert not {"attention", "attention_gradient"} & set(calls)


@pytest.mark.skipif(create().platform.name != "cpu", reason="other platforms have their own")
def test_other_attention_stays_in_xla(calls: list[str]):
    def attend(shape: tuple[int, ...], mask: torch.Tensor | None, dtype: torch.dtype) -> None:
        query = torch.randn(shape).to(dtype)
        on = [None if value is None else value.to(DEVICE) for value in (query, mask)]
        found = F.scaled_dot_product_attention(on[0], on[0], on[0], on[1]).cpu()
        wanted = F.scaled_dot_product_attention(query, query, query, mask)
        torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)

    attend((2, 2, 8, 8), None, torch.float32)  # small
    attend((4, 4, 64, 32), None, torch.bfloat16)
    assert calls == []


@pytest.mark.skipif(create().platform.name != "cpu", reason="other platforms have convolutions")
def test_an_error_in_a_share_is_the_executables():
    """The handler has returned by then: the error comes with the result that XLA waits for."""
    torch.tpu.init()
    window = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "output_padding": [0, 0]}
    out = jax.ShapeDtypeStruct((4, 8, 38, 38), "float32")

    @jax.jit
    def convolve(x: jax.Array, weight: jax.Array) -> jax.Array:
        result: jax.Array = kernels.call(
            "convolution", out, x, weight, **window, transposed=False, groups=1
        )
        return result + 1

    x = np.ones((4, 5, 40, 40), np.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"to have 3 channels, but got 5"):
        convolve(x, np.ones((8, 3, 3, 3), np.float32)).block_until_ready()
    assert float(convolve(x, np.ones((8, 5, 3, 3), np.float32))[3, 7, 37, 37]) == 46


def test_a_kernel_is_called_inside_a_transform():
    x, weight = torch.randn(4, 2, 16, 20, 20), torch.randn(32, 16, 3, 3)

    def loss(sample: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.conv2d(sample, weight).square().mean()

    gradient = torch.func.vmap(torch.func.grad(loss, argnums=1), in_dims=(0, None))
    expected = gradient(x, weight)
    found = gradient(x.to(DEVICE), weight.to(DEVICE)).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_the_users_own_threads_are_left_alone():
    threads = torch.get_num_threads()
    x, weight = torch.randn(8, 16, 32, 32), torch.randn(32, 16, 3, 3)
    for _ in range(3):
        F.conv2d(x.to(DEVICE), weight.to(DEVICE)).sum().item()
    assert torch.get_num_threads() == threads


TEAMS = """
import os
import torch

def gradient():
    x, y = (torch.ones(*shape, device="tpu") for shape in ((1040, 192), (1040, 768)))
    return (x.t() @ y).sum().item()

assert gradient() == 1040 * 192 * 768
torch.set_num_threads(8)  # starts the calling thread's own team
before = len(os.listdir("/proc/self/task"))
for _ in range(20):
    gradient()
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux lists them")
def test_the_number_of_threads_that_a_user_sets_is_not_taken_for_each_share():
    """MKL would start that many for each of XLA's: they took seven times as long together."""
    started, _ = finish(start(TEAMS))
    # A team is seven more for each of XLA's threads; one that compiles may start or end meanwhile.
    assert int(started) < 7


def test_only_dense_float32_on_the_cpu_platform_is_taken():
    ones = create().put(torch.ones(4).numpy(), 0)
    half = create().put(torch.ones(4, dtype=torch.float16).numpy(), 0)
    torch.tpu.init()
    platform = create().platform
    assert platform.has_kernel("product", ones) == (platform.name == "cpu")
    assert not platform.has_kernel("product", half)
    assert not platform.has_kernel("product", ones[:0])
    assert not platform.has_kernel("sine", ones)
    with pytest.raises(NotImplementedError, match="platform gpu has no kernel product"):
        Platform("gpu").call("product", None, ones)
