"""Long attention where the device's memory is not the host's: in blocks, with the CPU's numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fuse.backends.xla.rules.attention_blocks import Cut
from tests.backends.attention_cuts import noted_cuts
from tests.device.helpers import DEVICE
from tests.lanes import only_in

pytestmark = only_in("accelerator", reason="the CPU has PyTorch's kernel for it")


@pytest.fixture(autouse=True)
def called(monkeypatch: pytest.MonkeyPatch) -> list[Cut]:
    """A megabyte of scores is many, and a block has a quarter of one."""
    return noted_cuts(monkeypatch, 1 << 20, 1 << 18)


@pytest.mark.parametrize("form", ["causal", "full", "grouped", "hidden", "biased"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_long_attention_and_its_gradients(form: str, dtype: torch.dtype, called: list[Cut]) -> None:
    generator = torch.Generator().manual_seed(0)
    length, groups = 301, 2 if form == "grouped" else 4

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    given = [random(1, heads, length, 16) for heads in (4, groups, groups)]
    options: dict[str, Any] = {"is_causal": form == "causal", "enable_gqa": form == "grouped"}
    if form == "hidden":
        options["attn_mask"] = torch.ones(length, length, dtype=torch.bool).tril(3)
    if form == "biased":  # of one with a gradient PyTorch makes other calls
        options["attn_mask"] = random(1, 4, length, length)
    grad = random(1, 4, length, 16)
    results = []
    for device in ("cpu", DEVICE):
        tensors = [one.detach().to(device).requires_grad_() for one in given]
        more = {k: v.to(device) if torch.is_tensor(v) else v for k, v in options.items()}
        output = F.scaled_dot_product_attention(*tensors, **more)
        output.backward(grad.to(device))
        results.append([output.detach(), *(one.grad for one in tensors)])
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    for wanted, found in zip(*results, strict=True):
        assert wanted is not None and found is not None
        torch.testing.assert_close(found.cpu(), wanted, atol=tolerance, rtol=tolerance)
    assert called
