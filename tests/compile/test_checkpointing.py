"""Activation checkpoints inside a compiled function: random calls among what is recomputed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from tests.compile.harness import Compile, compare_with_cpu
from tests.programs.harness import DEVICE


def attended(x: torch.Tensor) -> torch.Tensor:
    """An operator that could draw, and does not without dropout."""
    return F.scaled_dot_product_attention(x.sin(), x.cos(), x, is_causal=True).exp()


def test_attention_is_recomputed_as_on_the_cpu() -> None:
    def program(device: torch.device, compile: Compile) -> Any:
        x = torch.randn(2, 2, 8, 4).to(device).requires_grad_()
        step = compile(lambda x: checkpoint(attended, x, use_reentrant=False).square().sum())
        found = []
        for _ in range(6):
            loss = step(x)
            loss.backward()
            found += [loss.item(), x.grad.cpu()]
            x.grad = None
        return found

    compare_with_cpu(program)


def test_what_was_dropped_is_dropped_in_the_backward_pass() -> None:
    def dropped(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x.sin() * 2, 0.5).exp() - 1

    step = torch.compile(lambda x: checkpoint(dropped, x, use_reentrant=False), backend="tpu")
    masks = []
    for _ in range(6):
        x = torch.linspace(0.5, 1.0, 200, device=DEVICE, requires_grad=True)
        y = step(x)
        y.sum().backward()
        kept = y.detach().cpu() != 0
        expected = torch.where(kept, (y.detach().cpu() + 1) * 4 * x.detach().cpu().cos(), 0.0)
        torch.testing.assert_close(x.grad.cpu(), expected, rtol=1e-4, atol=1e-4)
        assert 0 < int(kept.sum()) < 200
        masks.append(kept)
    assert not torch.equal(masks[0], masks[5])
