"""Linear layers and matrix products past the shape cap: one host call each, unless PyTorch, a
mode or a subclass asks for what they are composed of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from tests.device.helpers import DEVICE, host_calls, mode

CPU = torch.device("cpu")


PRODUCTS = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (5, 3, 4)), ((5, 1, 2, 3), (6, 3, 4)), ((0, 3), (3, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), PRODUCTS)
def test_products(left: tuple[int, ...], right: tuple[int, ...], ragged: Callable):
    x, y = ragged(*left), torch.randn(right).to(DEVICE)
    with torch.no_grad():
        assert host_calls(lambda: x @ y) == 1
        assert (
            host_calls(lambda: torch.randn(2, 2).to(DEVICE) @ torch.ones(2, 2, device=DEVICE)) == 0
        )
        torch.testing.assert_close((x @ y).cpu(), x.cpu() @ y.cpu())
        found = (x @ y).relu()
    torch.testing.assert_close(found.cpu(), (x.cpu() @ y.cpu()).relu())


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3), (0, 3)])
@pytest.mark.parametrize("biased", [True, False])
def test_linear_layers(shape: tuple[int, ...], biased: bool, ragged: Callable):
    x, weight = ragged(*shape), torch.randn(5, 3).to(DEVICE)
    bias = torch.randn(5).to(DEVICE) if biased else None
    expected = F.linear(x.cpu(), weight.cpu(), None if bias is None else bias.cpu())
    with torch.no_grad():
        assert host_calls(lambda: F.linear(x, weight, bias)) == 1
        torch.testing.assert_close(F.linear(x, weight, bias).cpu(), expected)
    weight.requires_grad_(False)
    assert host_calls(lambda: F.linear(x, weight, bias)) == 1  # nothing asks for a gradient


def test_attention_and_norms(ragged: Callable):
    x, weight = ragged(2, 4, 3, 8), torch.randn(8).to(DEVICE)
    host, w = x.cpu(), weight.cpu()
    seen = torch.ones(3, 3, dtype=torch.bool).tril()
    attention = F.scaled_dot_product_attention
    with torch.no_grad():
        for masked in ({}, {"is_causal": True}, {"attn_mask": seen}, {"attn_mask": seen.float()}):
            given = {k: v.to(DEVICE) if torch.is_tensor(v) else v for k, v in masked.items()}
            assert host_calls(lambda given=given: attention(x, x, x, **given)) == 1  # type: ignore[misc]
            torch.testing.assert_close(
                attention(x, x, x, **given).cpu(), attention(host, host, host, **masked)
            )
        few = attention(x, x[:, :2], x[:, :2], enable_gqa=True)
        wanted = attention(host, host[:, :2], host[:, :2], enable_gqa=True)
        torch.testing.assert_close(few.cpu(), wanted)
        assert host_calls(lambda: F.layer_norm(x, (8,), weight)) == 1
        torch.testing.assert_close(F.layer_norm(x, (8,), weight).cpu(), F.layer_norm(host, (8,), w))
    assert F.layer_norm(x, (8,), weight.requires_grad_()).requires_grad
    assert host_calls(lambda: attention(x, x, x, dropout_p=0.5)) != 1  # the device draws


def test_a_result_is_the_callers_own(ragged: Callable):
    x, one = ragged(2, 3), torch.eye(3).to(DEVICE)
    with torch.no_grad():
        y = x @ one
        y += 1
    torch.testing.assert_close(y.cpu(), x.cpu() + 1)


def test_gradients(ragged: Callable):
    x = ragged(4, 2, 3)
    weight = torch.randn(5, 3)
    found = []
    for device in (CPU, DEVICE):
        w = weight.clone().to(device).requires_grad_()
        y = F.linear(x.to(device), w) @ torch.ones(5, 2, device=device)
        assert y.requires_grad
        y.square().sum().backward()
        assert w.grad is not None
        found.append(w.grad.cpu())
    torch.testing.assert_close(found[1], found[0])


def test_forward_mode(ragged: Callable):
    x, weight, change = ragged(2, 3), torch.randn(5, 3).to(DEVICE), torch.randn(2, 3)
    with torch.no_grad(), forward_ad.dual_level():
        y = F.linear(forward_ad.make_dual(x, change.to(DEVICE)), weight)
        tangent = forward_ad.unpack_dual(y).tangent
    torch.testing.assert_close(tangent.cpu(), change @ weight.cpu().t())


def test_transforms(ragged: Callable):
    x, weight = ragged(4, 2, 3), torch.randn(3, 5).to(DEVICE)
    mapped = torch.func.vmap(torch.matmul, (0, None))(x, weight)
    torch.testing.assert_close(mapped.cpu(), x.cpu() @ weight.cpu())
    slope = torch.func.grad(lambda w: (x @ w).square().sum())(weight)
    wanted = torch.func.grad(lambda w: (x.cpu() @ w).square().sum())(weight.cpu())
    torch.testing.assert_close(slope.cpu(), wanted)


def test_conjugates(ragged: Callable):
    x, y = torch.complex(ragged(2, 3), ragged(2, 3)), torch.randn(2, 3).to(DEVICE)
    with torch.no_grad():
        found = x.mH.conj() @ y.to(torch.complex64), x.conj() @ y.t().to(torch.complex64)
    torch.testing.assert_close(found[0].cpu(), x.cpu().mT @ y.cpu().to(torch.complex64))
    torch.testing.assert_close(found[1].cpu(), x.cpu().conj() @ y.cpu().t().to(torch.complex64))


def test_a_dispatch_mode_sees_the_parts(ragged: Callable):
    seen: list[str] = []

    class Note(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = ragged(4, 2, 3)
    with torch.no_grad(), Note():
        F.linear(x, torch.ones(5, 3, device=DEVICE))
    assert any("mm" in name for name in seen)
    assert "aten.linear.default" not in seen


def test_the_cpus_refusal(ragged: Callable):
    with torch.no_grad(), pytest.raises(RuntimeError, match="cannot be multiplied"):
        ragged(2, 3) @ torch.ones(4, 2, device=DEVICE)
    with torch.no_grad(), pytest.raises(RuntimeError, match="on the same device"):
        ragged(2, 3) @ torch.ones(3, 2)


def test_autocast(ragged: Callable):
    x, weight = ragged(4, 2, 3), torch.randn(5, 3).to(DEVICE)
    with torch.no_grad(), torch.autocast("tpu", torch.bfloat16):
        assert F.linear(x, weight).dtype == torch.bfloat16


def test_strict_mode_runs_the_parts(ragged: Callable):
    x = ragged(4, 2, 3)
    with mode("strict"), torch.no_grad():
        assert host_calls(lambda: x @ torch.ones(3, 2, device=DEVICE)) == 0
