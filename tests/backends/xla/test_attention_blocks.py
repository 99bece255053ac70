"""Attention in blocks of queries, as platforms have it that are not the CPU."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import torch
import torch.nn.functional as F

from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules import attention_blocks
from fuse.backends.xla.rules.attention_blocks import Cut, cut
from fuse.backends.xla.rules.registry import RuleContext
from tests.backends import rule_harness
from tests.backends.attention_cuts import noted_cuts
from tests.backends.rule_harness import RULES, check, on_platform, to_array, to_tensor
from tests.backends.test_rules_attention import FORWARD, keep_out, masks, operands, r  # noqa: F401

OVERRIDEABLE = "_scaled_dot_product_fused_attention_overrideable"


@pytest.fixture(autouse=True)
def called(monkeypatch: pytest.MonkeyPatch) -> list[Cut]:
    """Scores are many, and a block has 8 queries: what was cut, for each call."""
    on_platform("gpu", monkeypatch, RuleContext)
    return noted_cuts(monkeypatch, 0, 0)


def long(keys: int = 23, heads: int = 3, dtype: torch.dtype = torch.float32) -> Any:
    """Twenty queries: two blocks and a half."""
    shapes = ((2, 3, 20, 8), (2, heads, keys, 8), (2, heads, keys, 8))
    return tuple(r(*shape, dtype=dtype) for shape in shapes)


def both_passes(tensors: Any, causal: bool, **options: Any) -> None:
    # In bfloat16 the CPU's kernel scales queries, and others scores.
    near = {"tolerance": (2e-2, 2e-2)} if tensors[0].dtype == torch.bfloat16 else {}
    check(FORWARD, *tensors, 0.0, causal, **options, **near)
    out, logsumexp = getattr(torch.ops.aten, FORWARD)(*tensors, 0.0, causal, **options)
    grad = r(*out.shape, dtype=out.dtype)
    given = (grad, *tensors, out, logsumexp, 0.0, causal)
    check(f"{FORWARD}_backward", *given, **options, **near)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16), ids=str)
@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize("keys", (15, 20, 23))
def test_long(keys: int, causal: bool, dtype: torch.dtype, called: list[Cut]) -> None:
    both_passes(long(keys, dtype=dtype), causal)
    assert called == [Cut(20, 8, 3)] * 2


def biases() -> list[torch.Tensor]:
    hidden = r(20, 23)
    hidden[2], hidden[:, 6] = -float("inf"), -float("inf")
    return [r(20, 23), r(2, 1, 20, 23), r(1, 3, 1, 23), hidden, hidden > 0]


@pytest.mark.parametrize("bias", range(4))
def test_biases(bias: int, called: list[Cut]) -> None:
    both_passes(long(), False, attn_mask=biases()[bias], scale=0.3)
    assert len(called) == 2


@pytest.mark.parametrize("bias", range(5))
@pytest.mark.parametrize("heads", (3, 1))
def test_gradients_of_biases(bias: int, heads: int, called: list[Cut]) -> None:
    """Against autograd: PyTorch's CPU has no kernel of this operator."""
    tensors = [one.requires_grad_() for one in long(heads=heads)]
    added = biases()[bias]
    of_bias = added.dtype != torch.bool
    added = added.requires_grad_() if of_bias else added
    expected = F.scaled_dot_product_attention(*tensors, attn_mask=added, enable_gqa=heads == 1)
    grad = r(*expected.shape)
    expected.backward(grad)
    context = rule_harness.RuleContext((), "float32")
    with jax.enable_x64(True):
        arrays = list(map(to_array, (*tensors, added)))
        found = RULES[OVERRIDEABLE](context, *arrays)
        grads = RULES[f"{OVERRIDEABLE}_backward"](
            context, to_array(grad), *arrays, (True, True, True, of_bias), found[0], found[1],
            None, None, 20, 23, 0.0, False, None, None,
        )  # fmt: skip
    torch.testing.assert_close(to_tensor(found[0]), expected.detach())
    assert len(called) == 2
    assert (grads[3] is not None) == of_bias
    for one, tensor in zip(grads, (*tensors, added), strict=True):
        if one is not None:
            assert tensor.grad is not None
            torch.testing.assert_close(to_tensor(one), tensor.grad, atol=1e-5, rtol=1e-4)


def test_few_scores_and_those_of_the_cpu_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key = to_array(r(2, 3, 20, 8)), to_array(r(2, 3, 23, 8))
    assert cut(RuleContext((), "float32", platform=Platform("gpu")), query, key) is not None
    assert cut(RuleContext((), "float32", platform=Platform("cpu")), query, key) is None
    monkeypatch.setattr(attention_blocks, "SCORES", 2 * 3 * 20 * 23 * 4)
    assert cut(RuleContext((), "float32", platform=Platform("gpu")), query, key) is None


def test_short_calls_of_other_tests_are_whole(called: list[Cut]) -> None:
    check(FORWARD, *operands(), 0.0, False, attn_mask=masks(torch.float32)[1])
    assert called == []
