"""Attention over jagged nested tensors, against attention sequence by sequence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nested._internal import nested_tensor

from tests.device.helpers import DEVICE
from tests.device.nested.programs import LENGTHS, attended, flat, heads, jagged

nested: Any = torch.nested
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")

WAYS: dict[str, dict[str, Any]] = {
    "all": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3, "is_causal": True},
}
KINDS: dict[str, tuple[int, ...]] = {
    "alike": LENGTHS,
    "skewed": (40, 1, 1, 1, 1, 1),  # all scores are fewer than padded ones
    "one empty": (3, 0, 4, 2),
    "one alone": (5,),
}


def close(found: Any, expected: Any, **tolerances: float) -> None:
    torch.testing.assert_close(
        flat(found), flat(expected), **(tolerances or {"rtol": 1e-4, "atol": 1e-5})
    )


def itself(device: Any, lengths: tuple[int, ...], options: dict[str, Any]) -> list[Tensor]:
    x = jagged(device, 48, lengths, requires_grad=True)
    out = attended(*map(heads, x.chunk(3, -1)), **options)
    out.sin().sum().backward()
    return [out, x.grad]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_sequence_attends_to_itself(kind: str, way: str) -> None:
    expected = itself("cpu", KINDS[kind], WAYS[way])
    close(itself(DEVICE, KINDS[kind], WAYS[way]), expected)


def across(device: Any, options: dict[str, Any]) -> Tensor:
    query = heads(jagged(device, 16, (3, 1, 4, 2)))
    key, value = heads(jagged(device, 16, (2, 5, 1, 3))), heads(jagged(device, 6, (2, 5, 1, 3)))
    value = nested.nested_tensor_from_jagged(
        value.transpose(1, 2).values().contiguous(), key.offsets()
    ).transpose(1, 2)
    return attended(query, key, value, **options)


@pytest.mark.parametrize("way", WAYS)
def test_each_sequence_attends_to_another(way: str) -> None:
    """A causal query sees the keys up to its own place, as PyTorch documents it."""
    close(across(DEVICE, WAYS[way]), across("cpu", WAYS[way]))


def grouped(device: Any) -> Tensor:
    query, key = jagged(device, 32), jagged(device, 16)
    key = nested.nested_tensor_from_jagged(key.values(), query.offsets())
    query, key = (x.unflatten(-1, [-1, 8]).transpose(1, 2) for x in (query, key))
    return attended(query, key, key * 2, enable_gqa=True)


def test_grouped_heads() -> None:
    close(grouped(DEVICE), grouped("cpu"))


def test_half_precision_and_autocast() -> None:
    x = jagged("cpu", 16)
    expected = attended(*[heads(x.bfloat16())] * 3)
    close(attended(*[heads(x.to(DEVICE).bfloat16())] * 3), expected, rtol=2e-2, atol=2e-2)
    with torch.autocast("tpu", torch.bfloat16):
        found = attended(*[heads(x.to(DEVICE))] * 3)
    assert found.dtype == torch.bfloat16
    close(found, expected, rtol=2e-2, atol=2e-2)


def test_dropout_keeps_what_it_does_not_drop() -> None:
    values = nested.nested_tensor([torch.ones(300, 16), torch.ones(200, 16)], layout=torch.jagged)
    x = heads(values.to(DEVICE))
    out = attended(x, x, x, dropout_p=0.25).detach().cpu()
    assert out.shape == (500, 2, 8)
    assert abs(out.mean().item() - 1) < 0.02 and out.std().item() > 0.01


def test_the_longest_sequence_is_read_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    values, ends = torch.randn(10, 16, device=DEVICE), torch.tensor([0, 3, 4, 10]).to(DEVICE)
    x = nested.nested_tensor_from_jagged(values, ends)
    read, reads = nested_tensor._get_sdpa_extreme_seqlen, []
    monkeypatch.setattr(
        nested_tensor, "_get_sdpa_extreme_seqlen", lambda *given: [reads.append(1), read(*given)][1]
    )
    for _ in range(3):
        q = heads(x)
        x = F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(-2)
    assert len(reads) == 1


def test_what_pytorch_refuses_is_refused() -> None:
    q = heads(jagged(DEVICE, 16))
    with pytest.raises(ValueError, match="Masks are not yet supported!"):
        F.scaled_dot_product_attention(q, q, q, attn_mask=q)
    with pytest.raises(ValueError, match="to have the same dtype"):
        F.scaled_dot_product_attention(q, q.bfloat16(), q)
    other = heads(jagged(DEVICE, 16, (2, 2)))
    with pytest.raises(RuntimeError) as caught:
        F.scaled_dot_product_attention(q, other, other)
    assert str(caught.value) == (
        "scaled_dot_product_attention: query, key and value have 4, 2 and 2 sequences; they must "
        "have as many"
    )
    with pytest.raises(RuntimeError) as caught:
        F.scaled_dot_product_attention(q, q, heads(jagged(DEVICE, 16, (3, 1, 4, 1))))
    assert str(caught.value) == (
        "scaled_dot_product_attention: the sequences of key have 10 rows, those of value 9; they "
        "must be as long"
    )
