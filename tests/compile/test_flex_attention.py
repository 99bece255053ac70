"""FlexAttention on the device: PyTorch's own functions, eager and compiled, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import fuse
from fuse.compile.counts import COUNTS
from tests.device.helpers import DEVICE

# Eager: PyTorch says that its definition is not fused, of which it knows nothing here.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

B, H, L, E = 2, 4, 96, 8
Mod = Callable[..., Tensor]
MASKS: dict[str, Mod | None] = {
    "causal": lambda b, h, i, j: i >= j,
    "window": lambda b, h, i, j: (i >= j) & (i - j < 17),
    "documents": lambda b, h, i, j: i // 20 == j // 20,
    "some rows empty": lambda b, h, i, j: (j < 30) & (i > 10),
    "none": None,
}
SCORES: dict[str, Callable[[Tensor], Mod | None]] = {
    "as they are": lambda bias: None,
    "relative": lambda bias: lambda s, b, h, i, j: s + 0.1 * (i - j),
    "captured": lambda bias: lambda s, b, h, i, j: s + bias[h] * (i - j).abs(),
    "capped": lambda bias: lambda s, b, h, i, j: 5 * torch.tanh(s / 5) * bias[h],
}


def dense(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Mod | None, score: Any) -> Tensor:
    """The same, written out over all scores."""
    k, v = (one.repeat_interleave(q.shape[1] // one.shape[1], 1) for one in (k, v))
    b, h, i, j = torch.meshgrid(*map(torch.arange, (B, H, L, L)), indexing="ij")
    scores = q @ k.transpose(-1, -2) / E**0.5
    mod = score(bias)
    scores = scores if mod is None else mod(scores, b, h, i, j)
    if mask is not None:
        scores = scores.masked_fill(~mask(b, h, i, j), -torch.inf)
    return torch.softmax(scores, -1).nan_to_num() @ v


def made(heads: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(B, H, L, E), (B, heads, L, E), (B, heads, L, E), (H,)]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def on_device(
    inputs: list[Tensor], mask: Mod | None, score: Any, wrap: Any, gradients: bool
) -> list[Tensor]:
    q, k, v, bias = (one.to(DEVICE).requires_grad_(gradients) for one in inputs)
    blocks = mask and create_block_mask(mask, None, None, L, L, device=DEVICE)
    options = {"block_mask": blocks, "enable_gqa": k.shape[1] != H}

    def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=score(bias), **options)

    attend = wrap(attend)
    for _ in range(3):
        out = attend(q, k, v, bias)
        used = [one for one in (q, k, v, bias) if gradients]
        grads = torch.autograd.grad(out.square().sum(), used, allow_unused=True) if used else ()
    return [one.detach().cpu() for one in (out, *grads) if one is not None]


def expected(inputs: list[Tensor], mask: Mod | None, score: Any, gradients: bool) -> list[Tensor]:
    leaves = [one.clone().requires_grad_(gradients) for one in inputs]
    out = dense(*leaves, mask, score)
    grads = torch.autograd.grad(out.square().sum(), leaves, allow_unused=True) if gradients else ()
    return [one.detach() for one in (out, *grads) if one is not None]


def wraps() -> dict[str, Any]:
    return {"eager": lambda f: f, "compiled": torch.compile(backend="tpu", fullgraph=True)}


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("mask", MASKS)
def test_agrees_with_the_dense_form(mask: str, score: str, how: str) -> None:
    for heads in (H, 2):
        inputs = made(heads)
        for gradients in (False, True):
            # A mask that leaves a row empty has no gradient in the dense form: NaN there.
            if gradients and mask == "some rows empty":
                continue
            wanted = expected(inputs, MASKS[mask], SCORES[score], gradients)
            found = on_device(inputs, MASKS[mask], SCORES[score], wraps()[how], gradients)
            assert len(found) == len(wanted)
            for one, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * other.abs().max())


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_what_a_modification_captures_may_need_no_gradient(how: str) -> None:
    q, k, v, bias = made(H)
    wanted = expected([q, k, v, bias], MASKS["causal"], SCORES["captured"], True)
    offsets = torch.arange(H).to(DEVICE)
    mod = SCORES["captured"](bias.to(DEVICE)[offsets])
    blocks = create_block_mask(MASKS["causal"], None, None, L, L, device=DEVICE)
    attend = wraps()[how](lambda q, k, v: flex_attention(q, k, v, score_mod=mod, block_mask=blocks))
    inputs = [one.to(DEVICE).requires_grad_() for one in (q, k, v)]
    out = attend(*inputs)
    found = [out, *torch.autograd.grad(out.square().sum(), inputs)]
    for one, other in zip(found, wanted, strict=False):  # the bias' is wanted in vain
        torch.testing.assert_close(one.cpu(), other, rtol=1e-3, atol=1e-4 * other.abs().max())


def test_a_compiled_call_is_captured_whole() -> None:
    inputs = made(H)
    before = COUNTS.by_operation
    fallbacks = fuse.stats()["host_fallbacks"]
    captured = COUNTS.captures
    on_device(inputs, MASKS["window"], SCORES["captured"], wraps()["compiled"], True)
    assert COUNTS.by_operation == before and COUNTS.captures >= captured + 2
    assert fuse.stats()["host_fallbacks"] == fallbacks


def test_log_sum_exp_and_half_precision() -> None:
    q, k, v, _ = made(H)
    rows = AuxRequest(lse=True)
    out, more = flex_attention(*(one.to(DEVICE) for one in (q, k, v)), return_aux=rows)
    scores = q @ k.transpose(-1, -2) / E**0.5
    torch.testing.assert_close(more.lse.cpu(), scores.logsumexp(-1))
    half = flex_attention(*(one.to(DEVICE).bfloat16() for one in (q, k, v)))
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float().cpu(), out.cpu(), rtol=0.05, atol=0.05)


def test_other_devices_are_asked_as_before() -> None:
    q = torch.randn(1, 1, 8, 4, requires_grad=True)
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        flex_attention(q, q, q)
    x = torch.randn(1, 1, 8, 4, device="meta")
    with pytest.raises(ValueError, match="FlexAttention is only supported on"):
        flex_attention(x, x, x)
