"""``torch.autocast``: dtypes, nesting, the cache of cast weights, and custom functions."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from tests.device.helpers import DEVICE
from tests.programs.harness import compare_with_cpu

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


def product_dtype() -> torch.dtype:
    x = torch.ones(2, 2, device=DEVICE)
    return (x @ x).dtype


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32], ids=str)
def test_another_dtype_is_warned_of_and_lowers_nothing(dtype: torch.dtype):
    with pytest.warns(UserWarning, match="In tpu autocast, but the target dtype is not supported"):
        block = torch.autocast("tpu", dtype=dtype)
    with block:
        assert not torch.is_autocast_enabled("tpu")
        assert product_dtype() == SINGLE


def test_without_a_dtype_it_is_the_one_that_is_set():
    before = torch.get_autocast_dtype("tpu")
    assert before == HALF
    try:
        for dtype in (BRAIN, HALF):
            torch.set_autocast_dtype("tpu", dtype)
            with torch.autocast("tpu"):
                assert product_dtype() == dtype
    finally:
        torch.set_autocast_dtype("tpu", before)
    assert product_dtype() == SINGLE


def test_blocks_nest_and_an_exception_leaves_them():
    found = []
    with torch.autocast("tpu", dtype=HALF):
        found.append(product_dtype())
        with torch.autocast("tpu", dtype=BRAIN):
            found.append(product_dtype())
            with torch.autocast("tpu", enabled=False):
                found.append(product_dtype())
            found.append(product_dtype())
        with pytest.raises(KeyError), torch.autocast("tpu", dtype=BRAIN):
            raise KeyError
        found.append(product_dtype())
    assert [*found, product_dtype()] == [HALF, BRAIN, SINGLE, BRAIN, HALF, SINGLE]


def test_one_device_is_lowered_and_the_others_are_not():
    x = torch.ones(2, 2)
    with torch.autocast("tpu", dtype=BRAIN):
        assert (x @ x).dtype == SINGLE and product_dtype() == BRAIN
    with torch.autocast("cpu", dtype=BRAIN):
        assert (x @ x).dtype == BRAIN and product_dtype() == SINGLE


def test_a_thread_begins_without_it():
    found = []
    with torch.autocast("tpu", dtype=BRAIN):
        thread = threading.Thread(target=lambda: found.append(product_dtype()))
        thread.start()
        thread.join()
        found.append(product_dtype())
    assert found == [SINGLE, BRAIN]


def test_a_decorated_function_is_lowered_at_every_call():
    lowered = torch.autocast("tpu", dtype=BRAIN)(product_dtype)
    assert [lowered(), product_dtype(), lowered()] == [BRAIN, SINGLE, BRAIN]


KINDS: dict[str, tuple[Callable[..., torch.Tensor], torch.dtype, torch.dtype]] = {
    "widened": (lambda half, single: half.asin(), SINGLE, HALF),
    "widened, a loss": (lambda half, single: F.mse_loss(half, half), SINGLE, HALF),
    "the widest of a list": (lambda half, single: torch.cat([half, single]), SINGLE, SINGLE),
    "the widest of three": (lambda half, single: half.addcmul(single, half), SINGLE, SINGLE),
    "lowered": (lambda half, single: F.linear(half, single[None]), HALF, HALF),
    "left alone": (lambda half, single: half + half, HALF, HALF),
    "left alone, of two": (lambda half, single: half * single, SINGLE, SINGLE),
    "left alone, doubles": (
        lambda half, single: single.double()[None] @ half.double()[:, None],
        torch.float64,
        torch.float64,
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_operator_computes_in_its_dtype(name: str):
    call, expected, halves = KINDS[name]
    half, single = torch.tensor([0.25, 0.5], dtype=HALF), torch.tensor([1.0, 0.75])
    for _ in range(3):
        with torch.autocast("tpu", dtype=HALF):
            found = call(half.to(DEVICE), single.to(DEVICE))
        assert found.dtype == expected
        plain = call(half.to(halves).float(), single)
        torch.testing.assert_close(found.cpu().float(), plain.float(), rtol=1e-3, atol=1e-3)


def test_what_is_unsafe_in_halves_is_refused():
    x = torch.full((2,), 0.5, device=DEVICE)
    refused = "binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast"
    with torch.autocast("tpu", dtype=HALF), pytest.raises(RuntimeError, match=refused):
        F.binary_cross_entropy(x, x)
    assert F.binary_cross_entropy(x, x).item() == pytest.approx(0.693147, rel=1e-4)


@pytest.mark.parametrize("kept", [True, False])
def test_a_weight_is_cast_once_where_the_cache_is_on(kept: bool):
    weight = torch.ones(2, 2, device=DEVICE, requires_grad=True)
    x = torch.ones(1, 2, device=DEVICE)
    with torch.autocast("tpu", dtype=BRAIN, cache_enabled=kept):
        casts = [(x @ weight).grad_fn.next_functions[1][0] for _ in range(2)]
    assert (casts[0] is casts[1]) == kept


def test_what_was_cast_is_forgotten_after_the_block():
    def program(device):
        weight = torch.eye(2).to(device).requires_grad_()
        x = torch.ones(3, 2, device=device)
        found = []
        for _ in range(3):
            with torch.autocast(device.type, dtype=BRAIN):
                y = x @ weight + x @ weight
            y.float().sum().backward()
            with torch.no_grad():
                weight -= 0.25 * weight.grad
            found.append((y, weight.grad.clone(), weight.clone()))
        return found

    compare_with_cpu(program)


class Product(torch.autograd.Function):
    """Notes whether autocast is on in either direction, and what it is given."""

    seen: list[tuple[bool, torch.dtype]]

    @staticmethod
    @torch.amp.custom_fwd(device_type="tpu")
    def forward(ctx, x):
        ctx.save_for_backward(x)
        Product.seen.append((torch.is_autocast_enabled("tpu"), x.dtype))
        return x @ x

    @staticmethod
    @torch.amp.custom_bwd(device_type="tpu")
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        Product.seen.append((torch.is_autocast_enabled("tpu"), (x @ x).dtype))
        return grad @ x.t() + x.t() @ grad


class SingleProduct(Product):
    forward = staticmethod(
        torch.amp.custom_fwd(Product.forward, device_type="tpu", cast_inputs=SINGLE)
    )


@pytest.mark.parametrize(
    ("function", "expected", "result"),
    [
        (Product, [(True, SINGLE), (True, HALF)], HALF),
        (SingleProduct, [(False, SINGLE), (False, SINGLE)], SINGLE),
    ],
)
def test_a_custom_function_goes_back_as_it_came(function, expected, result):
    Product.seen = []
    x = torch.tensor([[1.0, 2.0], [0.5, 1.0]]).to(DEVICE).requires_grad_()
    with torch.autocast("tpu", dtype=HALF):
        y = function.apply(x)
    y.sum().backward()
    assert y.dtype == result and x.grad.dtype == SINGLE
    assert Product.seen == expected
    reference = x.detach().cpu().requires_grad_()
    (reference @ reference).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), reference.grad, rtol=1e-3, atol=1e-3)


def test_float32_within_another_dtype_as_a_router_of_experts_asks() -> None:
    """What CUDA does: operands are widened, and the region around goes on in its own dtype."""
    tokens, weight = torch.randn(4, 8, dtype=torch.bfloat16), torch.randn(8, 3)
    with torch.autocast("tpu", dtype=BRAIN):
        with torch.autocast("tpu", dtype=SINGLE):
            scores = F.linear(tokens.to("tpu"), weight.T.bfloat16().to("tpu"))
        around = tokens.to("tpu") @ weight.to("tpu")
    assert (scores.dtype, around.dtype) == (torch.float32, torch.bfloat16)
    expected = tokens.float() @ weight.bfloat16().float()
    torch.testing.assert_close(scores.cpu(), expected, rtol=1e-5, atol=1e-5)
