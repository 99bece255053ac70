"""Dispatch modes around a compiled function: they see nothing of what it computes, at no call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

DEVICE = torch.device("tpu")


class Seen(TorchDispatchMode):
    """Remembers the names of operators."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # as selective checkpointing's own: else Dynamo compiles nothing within it

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def scores(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    places = torch.arange(weight.shape[1], device=x.device, dtype=x.dtype)
    return torch.relu(x @ weight) * places


def scores_with_the_host(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    places = torch.arange(weight.shape[1], dtype=x.dtype).add(0).to(x.device)
    return torch.relu(x @ weight) * places


@pytest.mark.parametrize("function", [scores, scores_with_the_host])
def test_a_mode_sees_none_of_its_operations(function: Callable[..., torch.Tensor]) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="tpu")
    x, weight = torch.randn(4, 8), torch.randn(8, 8)
    compiled(x.to(DEVICE), weight.to(DEVICE))
    for rows in (4, 4, 4):
        given = torch.randn(rows, 8).to(DEVICE), weight.to(DEVICE)
        with Seen() as seen:
            found = compiled(*given)
        assert not [name for name in seen.names if "relu" in name or "arange" in name]
        torch.testing.assert_close(found.cpu(), function(given[0].cpu(), weight))


def kept(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """Products are kept, and nothing else."""
    names = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if op in names else CheckpointPolicy.PREFER_RECOMPUTE


def gradients(device: torch.device, function: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    """Of layers by a function, each checkpointed selectively, over six steps."""
    torch.manual_seed(0)
    weights = [torch.randn(8, 8).div(4).to(device).requires_grad_() for _ in range(3)]
    contexts = functools.partial(create_selective_checkpoint_contexts, kept)

    def layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.tanh(function(x, weight) @ weight)

    found = []
    for step in range(-2, 6):
        x = torch.randn(4 + step % 2, 8).to(device)
        for weight in weights:
            x = checkpoint(layer, x, weight, use_reentrant=False, context_fn=contexts)
        if step < 0:
            continue  # forward passes that are known when others are computed again
        found += [grad.cpu() for grad in torch.autograd.grad(x.square().mean(), weights)]
    return found


def test_selective_checkpoints_around_it() -> None:
    torch._dynamo.reset()
    expected = gradients(torch.device("cpu"), scores)
    found = gradients(DEVICE, torch.compile(scores, backend="tpu", dynamic=False))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
