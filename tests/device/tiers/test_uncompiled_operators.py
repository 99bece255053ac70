"""Operators that run uncompiled by kernels of their own: those that know their types are PyTorch's
on the CPU to the bit, with its errors; linear layers, products, attention and norms run whole,
unless PyTorch, a mode or a subclass asks for what they are composed of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import fuse
from tests.device.helpers import DEVICE, host_calls, mode, recorder
from tests.lanes import not_on_accelerators

pytestmark = not_on_accelerators("no call runs uncompiled there")

CPU = torch.device("cpu")
Program = Callable[[torch.Tensor], object]
PROGRAMS: dict[str, Program] = {
    "add": lambda x: x + x,
    "add, broadcast": lambda x: torch.add(x, x[:1], alpha=2),
    "add, a number": lambda x: 1 + x,
    "add, integers and a number": lambda x: x.long() + 1.5,
    "add, transposed": lambda x: x + x.t().contiguous().t(),
    "sub": lambda x: x - x[:, :1],
    "mul": lambda x: x * 2,
    "div": lambda x: x / 3**0.5,
    "div, integers": lambda x: x.long() / 3,
    "neg": lambda x: -x.t(),
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu, by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "rsqrt": torch.rsqrt,
    "pow": lambda x: x**2,
    "mean": lambda x: x.mean(-1, keepdim=True),
    "mean of all": lambda x: x.mean((0, 1)),
    "mean, another dtype": lambda x: x.mean(0, dtype=torch.float64),
    "argmax": lambda x: x.argmax(-1, keepdim=True),
    "argmax of all": torch.argmax,
    "softmax": lambda x: x.softmax(-1),
    "softmax, half precision": lambda x: x.bfloat16().softmax(0),
    "layer norm": lambda x: F.layer_norm(x, (4,)),
    "layer norm, all results": lambda x: torch.native_layer_norm(x, [4], x[0], x[1], 1e-5),
    "cat": lambda x: torch.cat([x, x[:, :2]], 1),
    "cat of one": lambda x: torch.cat([x]),
    "cat of views": lambda x: torch.cat([x.t(), x[:, 1:].t(), x.t()[1:]]),
    "cat, an empty one": lambda x: torch.cat([x[0, :0], x]),
    "clone": lambda x: x.t().clone(),
    "clone, contiguous": lambda x: x.t().contiguous(),
    "converted": lambda x: x[:, ::2].double(),
    "products": lambda x: (torch.addmm(x[0, :3], x, x.t()), torch.mm(x.t(), x)),
    "products of batches": lambda x: torch.bmm(x[None], x.t()[None]),
    "comparisons": lambda x: (x == 0.5, x < 0, ~(x < 0), (x < 0) | (x == 0.5), x.int() & 3),
    "cos, sin, exp": lambda x: (x.cos(), x.sin(), x.exp()),
    "max": torch.max,
    "sum": lambda x: (x.sum(0), x.sum(-1, keepdim=True, dtype=torch.float64)),
    "where": lambda x: torch.where(x < 0, x, 2.0),
    "cumsum": lambda x: x.cumsum(1),
    "isin": lambda x: torch.isin(x.int(), x[0].int()),
    "embedding": lambda x: F.embedding(x.argmax(-1).clamp(max=2), x),
    "embedding, a matrix of indices": lambda x: F.embedding(x.long().clamp(0, 2).t(), x),
    "embedding, no indices": lambda x: F.embedding(x[:0].long(), x),
}


def parts(value: object) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)  # type: ignore[return-value]


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str, uncompiled: Callable[..., torch.Tensor]) -> None:
    program, x = PROGRAMS[name], uncompiled(3, 4)
    with torch.no_grad():
        wanted, found = parts(program(x.cpu())), parts(program(x))
        assert host_calls(lambda: program(x)) > 0
        for one, other in zip(found, wanted, strict=True):
            assert one.device.type == "tpu"
            assert one.stride() == other.stride()
            torch.testing.assert_close(one.cpu(), other, rtol=0, atol=0, equal_nan=True)
            assert host_calls(lambda one=one: one == one) == 1  # type: ignore[misc]


@pytest.mark.parametrize("name", PROGRAMS)
def test_recorded_values(name: str) -> None:
    program, x = PROGRAMS[name], torch.randn(3, 4)
    for _ in range(3):
        wanted, found = parts(program(x)), parts(program(x.to(DEVICE)))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one.cpu(), other, equal_nan=True)


def test_an_operand_of_its_own_is_not_given_away(uncompiled: Callable[..., torch.Tensor]) -> None:
    x = uncompiled(3, 4)
    kept = x.cpu().clone()
    with torch.no_grad():
        for program in (torch.relu, lambda x: torch.cat([x]), lambda x: x + 0):
            program(x).add_(1)
    torch.testing.assert_close(x.cpu(), kept)


def test_a_value_that_is_pending(uncompiled: Callable[..., torch.Tensor]) -> None:
    x = uncompiled(3, 4)
    with torch.no_grad():
        with recorder(tier="compiled"):
            y = torch.ones(3, 4, device=DEVICE) * 3
        torch.testing.assert_close((x * y).cpu(), x.cpu() * 3)


def test_gradients(uncompiled: Callable[..., torch.Tensor]) -> None:
    found = []
    for x in (uncompiled(3, 4), uncompiled(3, 4).cpu()):
        x.requires_grad_()
        y = torch.cat([F.gelu(x) / 2, x.softmax(-1)], 1).mean(-1)
        y.sum().backward()
        assert x.grad is not None
        found.append(x.grad.cpu())
    torch.testing.assert_close(found[0], found[1])


def test_the_cpus_refusals(uncompiled: Callable[..., torch.Tensor]) -> None:
    x = uncompiled(3, 4)
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="must match the size of tensor b"):
            x + x[:, :3]
        with pytest.raises(RuntimeError, match="Sizes of tensors must match except in dimension 0"):
            torch.cat([x, x[:, :3]])
        with pytest.raises(IndexError, match="index out of range"):
            F.embedding(x.argmax(-1) + 7, x)
        with pytest.raises(RuntimeError, match="'weight' must be 2-D"):
            F.embedding(x.argmax(-1), x[0])
        with pytest.raises(RuntimeError, match="on the same device"):
            x + torch.ones(3, 4)


def test_lazy_conjugation_and_negation(uncompiled: Callable[..., torch.Tensor]) -> None:
    z = torch.complex(uncompiled(3, 4), uncompiled(3, 4))
    with torch.no_grad():
        torch.testing.assert_close((z.conj() * z).cpu(), z.cpu().conj() * z.cpu())
        torch.testing.assert_close((z.conj().imag + 1).cpu(), z.cpu().conj().imag + 1)


def test_other_modes_record(uncompiled: Callable[..., torch.Tensor]) -> None:
    x = uncompiled(3, 4)
    with mode("strict"), torch.no_grad():
        assert host_calls(lambda: torch.cat([x + 1, x])) == 0


def test_memory_is_accounted_for(uncompiled: Callable[..., torch.Tensor]) -> None:
    x = uncompiled(3, 4)
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    with torch.no_grad():
        y = x + 1
        assert torch.tpu.memory_allocated() == before + 48
        del y
    assert torch.tpu.memory_allocated() == before


PRODUCTS = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (5, 3, 4)), ((5, 1, 2, 3), (6, 3, 4)), ((0, 3), (3, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), PRODUCTS)
def test_products(
    left: tuple[int, ...], right: tuple[int, ...], uncompiled: Callable[..., torch.Tensor]
) -> None:
    x, y = uncompiled(*left), torch.randn(right).to(DEVICE)
    with torch.no_grad():
        assert host_calls(lambda: x @ y) == 1
        torch.testing.assert_close((x @ y).cpu(), x.cpu() @ y.cpu())
        found = (x @ y).relu()
    torch.testing.assert_close(found.cpu(), (x.cpu() @ y.cpu()).relu())


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3), (0, 3)])
@pytest.mark.parametrize("biased", [True, False])
def test_linear_layers(
    shape: tuple[int, ...], biased: bool, uncompiled: Callable[..., torch.Tensor]
) -> None:
    x, weight = uncompiled(*shape), torch.randn(5, 3).to(DEVICE)
    bias = torch.randn(5).to(DEVICE) if biased else None
    expected = F.linear(x.cpu(), weight.cpu(), None if bias is None else bias.cpu())
    with torch.no_grad():
        assert host_calls(lambda: F.linear(x, weight, bias)) == 1
        torch.testing.assert_close(F.linear(x, weight, bias).cpu(), expected)
    weight.requires_grad_(False)
    assert host_calls(lambda: F.linear(x, weight, bias)) == 1  # nothing asks for a gradient


def test_attention_and_norms(uncompiled: Callable[..., torch.Tensor]) -> None:
    x, weight = uncompiled(2, 4, 3, 8), torch.randn(8).to(DEVICE)
    host, w = x.cpu(), weight.cpu()
    seen = torch.ones(3, 3, dtype=torch.bool).tril()
    attention = F.scaled_dot_product_attention
    with torch.no_grad():
        for masked in ({}, {"is_causal": True}, {"attn_mask": seen}, {"attn_mask": seen.float()}):
            given = {k: v.to(DEVICE) if torch.is_tensor(v) else v for k, v in masked.items()}
            _begun = x + 0  # what begins a segment is never whole
            assert host_calls(lambda given=given: attention(x, x, x, **given)) == 1  # type: ignore[misc]
            torch.testing.assert_close(
                attention(x, x, x, **given).cpu(), attention(host, host, host, **masked)
            )
        few = attention(x, x[:, :2], x[:, :2], enable_gqa=True)
        wanted = attention(host, host[:, :2], host[:, :2], enable_gqa=True)
        torch.testing.assert_close(few.cpu(), wanted)
        _begun = x + 0
        assert host_calls(lambda: F.layer_norm(x, (8,), weight)) == 1
        torch.testing.assert_close(F.layer_norm(x, (8,), weight).cpu(), F.layer_norm(host, (8,), w))
    assert F.layer_norm(x, (8,), weight.requires_grad_()).requires_grad
    assert host_calls(lambda: attention(x, x, x, dropout_p=0.5)) != 1  # the device draws


def test_a_product_is_the_callers_own(uncompiled: Callable[..., torch.Tensor]) -> None:
    x, one = uncompiled(2, 3), torch.eye(3).to(DEVICE)
    with torch.no_grad():
        y = x @ one
        y += 1
    torch.testing.assert_close(y.cpu(), x.cpu() + 1)


def test_gradients_of_whole_calls(uncompiled: Callable[..., torch.Tensor]) -> None:
    x = uncompiled(4, 2, 3)
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


def test_forward_mode(uncompiled: Callable[..., torch.Tensor]) -> None:
    x, weight, change = uncompiled(2, 3), torch.randn(5, 3).to(DEVICE), torch.randn(2, 3)
    with torch.no_grad(), forward_ad.dual_level():
        y = F.linear(forward_ad.make_dual(x, change.to(DEVICE)), weight)
        tangent = forward_ad.unpack_dual(y).tangent
    torch.testing.assert_close(tangent.cpu(), change @ weight.cpu().t())


def test_transforms(uncompiled: Callable[..., torch.Tensor]) -> None:
    x, weight = uncompiled(4, 2, 3), torch.randn(3, 5).to(DEVICE)
    mapped = torch.func.vmap(torch.matmul, (0, None))(x, weight)
    torch.testing.assert_close(mapped.cpu(), x.cpu() @ weight.cpu())
    slope = torch.func.grad(lambda w: (x @ w).square().sum())(weight)
    wanted = torch.func.grad(lambda w: (x.cpu() @ w).square().sum())(weight.cpu())
    torch.testing.assert_close(slope.cpu(), wanted)


def test_conjugates(uncompiled: Callable[..., torch.Tensor]) -> None:
    x, y = torch.complex(uncompiled(2, 3), uncompiled(2, 3)), torch.randn(2, 3).to(DEVICE)
    with torch.no_grad():
        found = x.mH.conj() @ y.to(torch.complex64), x.conj() @ y.t().to(torch.complex64)
    torch.testing.assert_close(found[0].cpu(), x.cpu().mT @ y.cpu().to(torch.complex64))
    torch.testing.assert_close(found[1].cpu(), x.cpu().conj() @ y.cpu().t().to(torch.complex64))


def test_a_lazy_conjugation_that_a_kernel_returns_is_carried_out() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(3, 3, dtype=torch.complex64), torch.randn(3, 2, dtype=torch.complex64)
    factors = torch.linalg.lu_factor(a)
    expected = torch.linalg.lu_solve(*factors, b.mH, left=False, adjoint=True)
    assert expected.is_conj()
    for _ in range(6):
        moved = (one.to(DEVICE) for one in (*factors, b))
        lu, pivots, right = moved
        found = torch.linalg.lu_solve(lu, pivots, right.mH, left=False, adjoint=True)
        torch.testing.assert_close(found.cpu(), expected.resolve_conj(), rtol=1e-4, atol=1e-4)


def test_a_dispatch_mode_sees_the_parts(uncompiled: Callable[..., torch.Tensor]) -> None:
    seen: list[str] = []

    class Note(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = uncompiled(4, 2, 3)
    with torch.no_grad(), Note():
        F.linear(x, torch.ones(5, 3, device=DEVICE))
    assert any("mm" in name for name in seen)
    assert "aten.linear.default" not in seen


def test_the_cpus_refusal_of_a_product(uncompiled: Callable[..., torch.Tensor]) -> None:
    with torch.no_grad(), pytest.raises(RuntimeError, match="cannot be multiplied"):
        uncompiled(2, 3) @ torch.ones(4, 2, device=DEVICE)
    with torch.no_grad(), pytest.raises(RuntimeError, match="on the same device"):
        uncompiled(2, 3) @ torch.ones(3, 2)


def test_autocast(uncompiled: Callable[..., torch.Tensor]) -> None:
    x, weight = uncompiled(4, 2, 3), torch.randn(5, 3).to(DEVICE)
    with torch.no_grad(), torch.autocast("tpu", torch.bfloat16):
        assert F.linear(x, weight).dtype == torch.bfloat16


def test_strict_mode_runs_the_parts(uncompiled: Callable[..., torch.Tensor]) -> None:
    x = uncompiled(4, 2, 3)
    with mode("strict"), torch.no_grad():
        assert host_calls(lambda: x @ torch.ones(3, 2, device=DEVICE)) == 0


def test_what_has_a_size_of_its_own_stays_in_the_segment() -> None:
    x = torch.randn(40, 30)
    with recorder(tier="uncompiled"):
        y = x.to(DEVICE) * 2
        cuts = fuse.stats()["cuts"]
        found, picked = (y > 0).nonzero(), y.masked_select(y > 1)
        several = y[y > 0.5]
        assert fuse.stats()["cuts"] == cuts
    doubled = x * 2
    wanted = (doubled > 0).nonzero()
    assert torch.equal(found.cpu(), wanted) and found.stride() == wanted.stride()
    assert torch.equal(picked.cpu(), doubled[doubled > 1])
    assert torch.equal(several.cpu(), doubled[doubled > 0.5])
