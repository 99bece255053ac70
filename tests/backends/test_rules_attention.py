"""Rules of attention against PyTorch's CPU kernels."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import torch

from fuse.backends.xla.rules.registry import RuleContext, Unsupported
from fuse.trace.spec import TensorSpec
from tests.backends import rule_harness
from tests.backends.rule_harness import RULES, check, to_array, to_tensor, unreached

_GENERATOR = torch.Generator().manual_seed(0)
FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
INF = float("inf")


@pytest.fixture(autouse=True)
def keep_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here ``out`` is the forward's result, an ordinary operand."""
    monkeypatch.setattr(rule_harness, "DROPPED", rule_harness.DROPPED - {"out"})


def r(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=_GENERATOR).to(dtype)


def masks(dtype: torch.dtype) -> list[torch.Tensor | None]:
    hidden = torch.zeros(5, 7)
    hidden[2], hidden[:, 6] = -INF, -INF
    return [None, r(5, 7, dtype=dtype), r(2, 1, 5, 7, dtype=dtype), hidden.to(dtype)]


def operands(keys: int = 7, heads: int = 3, dtype: torch.dtype = torch.float32) -> Any:
    shapes = ((2, 3, 5, 8), (2, heads, keys, 8), (2, heads, keys, 8))
    return tuple(r(*shape, dtype=dtype) for shape in shapes)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16), ids=str)
@pytest.mark.parametrize("mask", range(4))
def test_masked(mask: int, dtype: torch.dtype) -> None:
    q, k, v = operands(dtype=dtype)
    options = {"attn_mask": masks(dtype)[mask], "scale": 0.3 if mask == 1 else None}
    check(FORWARD, q, k, v, 0.0, False, **options)
    out, logsumexp = getattr(torch.ops.aten, FORWARD)(q, k, v, 0.0, False, **options)
    grad = r(*out.shape, dtype=dtype)
    check(f"{FORWARD}_backward", grad, q, k, v, out, logsumexp, 0.0, False, **options)


@pytest.mark.parametrize("keys", (4, 5, 7))
def test_causal(keys: int) -> None:
    q, k, v = operands(keys)
    check(FORWARD, q, k, v, 0.0, True)
    out, logsumexp = getattr(torch.ops.aten, FORWARD)(q, k, v, 0.0, True)
    check(f"{FORWARD}_backward", r(*out.shape), q, k, v, out, logsumexp, 0.0, True)


def test_grouped_heads() -> None:
    check(FORWARD, *operands(heads=1), 0.0, False)


def test_empty_batch() -> None:
    q, k, v = (tensor[:0] for tensor in operands())
    check(FORWARD, q, k, v, 0.0, False)
    out, logsumexp = getattr(torch.ops.aten, FORWARD)(q, k, v, 0.0, False)
    check(f"{FORWARD}_backward", r(*out.shape), q, k, v, out, logsumexp, 0.0, False)


@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize("mask", (None, (5, 7), (2, 1, 5, 7)))
@pytest.mark.parametrize("heads", (3, 1))
def test_overrideable(causal: bool, mask: tuple[int, ...] | None, heads: int) -> None:
    """The overrideable operators have no CPU kernel: compare them with autograd."""
    tensors = [tensor.requires_grad_() for tensor in operands(heads=heads)]
    if mask is not None:
        if causal:
            pytest.skip("PyTorch refuses a mask together with is_causal")
        tensors.append(r(*mask).requires_grad_())
    bias = tensors[3] if mask is not None else None
    out = torch.nn.functional.scaled_dot_product_attention(
        *tensors[:3], bias, is_causal=causal, enable_gqa=heads != 3
    )
    grad = torch.randn_like(out)
    expected = [out, *torch.autograd.grad(out, tensors, grad)]
    context = RuleContext(out=(TensorSpec("float32", tuple(out.shape)),), result_type="float32")

    def call(grad: jax.Array, *values: jax.Array) -> Any:
        q, k, v, *rest = values
        given = rest[0] if rest else None
        name = "_scaled_dot_product_fused_attention_overrideable"
        first = RULES[name](context, q, k, v, given, 0.0, causal, False, scale=None)
        out, logarithm, none_q, none_k, max_q, max_k, seed, offset, debug = first
        assert (none_q, none_k, max_q, max_k, debug) == (None, None, 5, 7, None)
        grads = RULES[f"{name}_backward"](
            context, grad, q, k, v, given, (True,) * 4, out, logarithm, None, None, 5, 7,
            0.0, causal, seed, offset, scale=None,
        )  # fmt: skip
        return [out, *(value for value in grads if value is not None)]

    with jax.enable_x64(True):
        results = jax.jit(call)(to_array(grad), *map(to_array, tensors))
        results = [to_tensor(result) for result in results]
    for result, want in zip(results, expected, strict=True):
        torch.testing.assert_close(result, want.detach(), rtol=1e-4, atol=1e-5)


def test_dropout_is_refused() -> None:
    context = RuleContext(out=(), result_type="float32")
    with pytest.raises(Unsupported, match="dropout"):
        RULES[FORWARD](context, *map(to_array, operands()), 0.5, False)


def test_every_rule_is_reached() -> None:
    assert unreached("attention") == set()
