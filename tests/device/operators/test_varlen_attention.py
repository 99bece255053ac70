"""``torch.nn.attention.varlen``: sequences behind one another, against each by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fuse.errors import UnsupportedError
from tests.device.helpers import DEVICE

varlen = pytest.importorskip("torch.nn.attention.varlen", reason="PyTorch 2.10 has none")

H, E = 4, 8
WAYS: dict[str, dict[str, Any]] = {
    "all": {},
    "causal": {"window_size": (-1, 0)},
    "window": {"window_size": (3, 2)},
    "scaled": {"scale": 0.5, "window_size": (5, 0)},
}
LENGTHS: dict[str, tuple[list[int], list[int]]] = {
    "alike": ([5, 1, 9], [5, 1, 9]),
    "longer keys": ([2, 7], [6, 11]),
    "one empty": ([4, 0, 3], [4, 0, 3]),
}


def each(
    q: Tensor, k: Tensor, v: Tensor, queries: list[int], keys: list[int], options: dict[str, Any]
) -> Tensor:
    """The same, sequence by sequence, written out."""
    found = []
    left, right = options.get("window_size", (-1, -1))
    parts = zip(q.split(queries), k.split(keys), v.split(keys), strict=True)
    for one_q, one_k, one_v in parts:
        one_k, one_v = (x.repeat_interleave(H // x.shape[1], 1) for x in (one_k, one_v))
        scores = torch.einsum("ihe,jhe->hij", one_q, one_k) * options.get("scale", E**-0.5)
        i, j = torch.arange(len(one_q))[:, None], torch.arange(len(one_k))
        beside = i + len(one_k) - len(one_q)
        out = ((right >= 0) & (j > beside + right)) | ((left >= 0) & (j < beside - left))
        found.append(
            torch.einsum("hij,jhe->ihe", scores.masked_fill(out, -torch.inf).softmax(-1), one_v)
        )
    return torch.cat(found)


def ends(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).int()


def run(function: Callable[..., Tensor], tensors: list[Tensor]) -> list[Tensor]:
    given = [one.clone().requires_grad_() for one in tensors]
    out = function(*given)
    (out * torch.arange(E, device=out.device)).sum().backward()
    return [out.detach().cpu(), *(one.grad.cpu() for one in given if one.grad is not None)]


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("heads", [H, 2], ids=["every head", "grouped"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_each_sequence_is_by_itself(lengths: str, way: str, heads: int, how: str) -> None:
    queries, keys = LENGTHS[lengths]
    options = WAYS[way]
    generator = torch.Generator().manual_seed(0)
    tensors = [
        torch.randn(sum(count), number, E, generator=generator)
        for count, number in ((queries, H), (keys, heads), (keys, heads))
    ]
    expected = run(lambda q, k, v: each(q, k, v, queries, keys, options), tensors)
    firsts, lasts = ends(queries).to(DEVICE), ends(keys).to(DEVICE)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return varlen.varlen_attn(
            q, k, v, firsts, lasts, max(queries), max(keys), enable_gqa=heads != H, **options
        )

    torch._dynamo.reset()
    function = torch.compile(call, backend="tpu") if how == "compiled" else call
    for _ in range(2):
        found = run(function, [one.to(DEVICE) for one in tensors])
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_rows_of_no_sequence_are_zeros() -> None:
    q = torch.randn(9, H, E, device=DEVICE)
    sums = ends([3, 4]).to(DEVICE)
    out, grad_q, *_ = run(lambda q, k, v: varlen.varlen_attn(q, k, v, sums, sums, 4, 4), [q, q, q])
    assert not out[7:].any() and not grad_q[7:].any()
    assert out[:7].abs().min() > 0 and torch.isfinite(grad_q).all()


def test_what_is_not_there_is_refused() -> None:
    q = torch.randn(4, H, E, device=DEVICE)
    sums = ends([4]).to(DEVICE)
    with pytest.raises(UnsupportedError, match=r"attention with alibi_slopes is not supported"):
        torch.ops.aten._flash_attention_forward(
            q, q, q, sums, sums, 4, 4, 0.0, False, False, alibi_slopes=torch.ones(H, device=DEVICE)
        )
