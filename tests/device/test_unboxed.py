"""Operators with kernels that know their types: run uncompiled they are PyTorch's on the CPU to
the bit, with its errors, and recorded they are as any other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from tests.device.helpers import DEVICE, host_calls, mode

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
def test_values(name: str, ragged: Callable[..., torch.Tensor]) -> None:
    program, x = PROGRAMS[name], ragged(3, 4)
    with torch.no_grad():
        wanted, found = parts(program(x.cpu())), parts(program(x))
        assert host_calls(lambda: program(x)) > 0
        for one, other in zip(found, wanted, strict=True):
            assert one.device.type == "tpu"
            assert one.stride() == other.stride()
            torch.testing.assert_close(one.cpu(), other, rtol=0, atol=0, equal_nan=True)
            assert host_calls(lambda one=one: one == one) == 1, "the result is not ragged"  # type: ignore[misc]


@pytest.mark.parametrize("name", PROGRAMS)
def test_recorded_values(name: str) -> None:
    program, x = PROGRAMS[name], torch.randn(3, 4)
    for _ in range(3):
        wanted, found = parts(program(x)), parts(program(x.to(DEVICE)))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one.cpu(), other, equal_nan=True)


def test_an_operand_of_its_own_is_not_given_away(ragged: Callable[..., torch.Tensor]) -> None:
    x = ragged(3, 4)
    kept = x.cpu().clone()
    with torch.no_grad():
        for program in (torch.relu, lambda x: torch.cat([x]), lambda x: x + 0):
            program(x).add_(1)
    torch.testing.assert_close(x.cpu(), kept)


def test_a_value_that_is_pending(ragged: Callable[..., torch.Tensor]) -> None:
    x, y = ragged(3, 4), torch.ones(3, 4, device=DEVICE) * 3
    with torch.no_grad():
        torch.testing.assert_close((x * y).cpu(), x.cpu() * 3)


def test_gradients(ragged: Callable[..., torch.Tensor]) -> None:
    found = []
    for x in (ragged(3, 4), ragged(3, 4).cpu()):
        x.requires_grad_()
        y = torch.cat([F.gelu(x) / 2, x.softmax(-1)], 1).mean(-1)
        y.sum().backward()
        assert x.grad is not None
        found.append(x.grad.cpu())
    torch.testing.assert_close(found[0], found[1])


def test_the_cpus_refusals(ragged: Callable[..., torch.Tensor]) -> None:
    x = ragged(3, 4)
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


def test_lazy_conjugation_and_negation(ragged: Callable[..., torch.Tensor]) -> None:
    z = torch.complex(ragged(3, 4), ragged(3, 4))
    with torch.no_grad():
        torch.testing.assert_close((z.conj() * z).cpu(), z.cpu().conj() * z.cpu())
        torch.testing.assert_close((z.conj().imag + 1).cpu(), z.cpu().conj().imag + 1)


def test_other_modes_record(ragged: Callable[..., torch.Tensor]) -> None:
    x = ragged(3, 4)
    with mode("strict"), torch.no_grad():
        assert host_calls(lambda: torch.cat([x + 1, x])) == 0


def test_memory_is_accounted_for(ragged: Callable[..., torch.Tensor]) -> None:
    x = ragged(3, 4)
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    with torch.no_grad():
        y = x + 1
        assert torch.tpu.memory_allocated() == before + 48
        del y
    assert torch.tpu.memory_allocated() == before
