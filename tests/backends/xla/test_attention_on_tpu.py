"""Attention as a TPU's programs have it: weights divided before the product, as a softmax is."""

from __future__ import annotations

import jax
import pytest
import torch

from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules.registry import RuleContext
from fuse.trace.spec import TensorSpec
from tests.backends.rule_harness import RULES, to_array, to_tensor
from tests.backends.test_rules_attention import FORWARD, masks, operands


def on_tpu(mask: torch.Tensor | None, causal: bool, *qkv: torch.Tensor) -> list[torch.Tensor]:
    shape = tuple(qkv[0].shape)
    specs = (TensorSpec("float32", shape), TensorSpec("float32", shape[:-1]))
    context = RuleContext(specs, "float32", platform=Platform("tpu"))
    with jax.enable_x64(True):
        bias = None if mask is None else to_array(mask)
        arrays = map(to_array, qkv)
        found = RULES[FORWARD](context, *arrays, 0.0, causal, attn_mask=bias)
        return list(map(to_tensor, found))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", range(4))
def test_output_and_logarithm_are_those_of_the_cpu_s_kernel(mask: int, causal: bool) -> None:
    bias = None if causal else masks(torch.float32)[mask]  # the last hides a whole row
    qkv = operands()
    expected = getattr(torch.ops.aten, FORWARD)(*qkv, 0.0, causal, attn_mask=bias)
    for found, wanted in zip(on_tpu(bias, causal, *qkv), expected, strict=True):
        torch.testing.assert_close(found, wanted)
