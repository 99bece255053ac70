"""Fused optimizers that run uncompiled: PyTorch's CPU kernels where those are right, else ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.device.helpers import DEVICE, recorder

KINDS = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)


def stepped(kind: Any, memory: torch.Tensor, strided: bool, **settings: bool) -> torch.Tensor:
    """``memory`` after steps of a parameter in it: all of it, or every other row."""
    rows = memory[::2] if strided else memory
    parameter = rows.detach().requires_grad_()
    optimizer = kind([parameter], lr=0.1, **settings)
    for step in range(3):
        parameter.grad = torch.full(rows.shape, 0.5 + step, dtype=rows.dtype, device=rows.device)
        optimizer.step()
    return memory.cpu()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("strided", [False, True], ids=["dense", "strided"])
def test_uncompiled_they_step_as_one_parameter_at_a_time(
    kind: Any, dtype: torch.dtype, strided: bool
):
    memory = torch.linspace(-1, 1, 24).reshape(6, 4).to(dtype)
    with recorder(tier="uncompiled"):
        found = stepped(kind, memory.to(DEVICE), strided, fused=True)
    wanted = stepped(kind, memory.clone(), strided, foreach=False)
    assert not torch.equal(found, memory)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
