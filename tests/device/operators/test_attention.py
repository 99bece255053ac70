"""Attention's operators as they are called by name, recorded and uncompiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fuse.errors import UnsupportedError
from tests.device.helpers import recorder

EFFICIENT = torch.ops.aten._scaled_dot_product_efficient_attention
OVERRIDEABLE = torch.ops.aten._scaled_dot_product_fused_attention_overrideable


@pytest.fixture
def tier(request: pytest.FixtureRequest) -> Iterator[None]:
    with recorder(tier=request.param):
        yield


@pytest.mark.usefixtures("tier")
@pytest.mark.parametrize("tier", ["compiled", "uncompiled"], indirect=True)
@pytest.mark.parametrize("length", [5, 192])  # the second is worth a kernel of the library's
@pytest.mark.parametrize("operator", [EFFICIENT, OVERRIDEABLE], ids=str)
def test_operators_of_attention_called_by_name(operator: Any, length: int) -> None:
    """A mask of truth values, a bias with a gradient, which functions do not hand to them."""
    generator = torch.Generator().manual_seed(0)
    *given, grad = (torch.randn(2, 2, length, 8, generator=generator) for _ in range(4))
    on_device = [one.to("tpu") for one in given]
    more = (True,) if operator is EFFICIENT else ()
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    found = operator(*on_device, seen.to("tpu"), *more)[0]
    expected = F.scaled_dot_product_attention(*given, seen)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
    for shape in ((length, length), (2, 1, length, length)):
        bias = torch.randn(shape, generator=generator)
        ours, theirs = bias.to("tpu").requires_grad_(), bias.clone().requires_grad_()
        operator(*on_device, ours, *more)[0].backward(grad.to("tpu"))
        F.scaled_dot_product_attention(*given, theirs).backward(grad)
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-5)
    arguments = (None, *more, 0.5)
    with pytest.raises(UnsupportedError, match="attention with dropout is no oper") as error:
        operator(*on_device, *arguments)[0].sum().item()
    assert f"overrideable(float32[2, 2, {length}, 8], " in str(error.value)
    assert "hint: call torch.nn.functional.scaled_dot_product_attention" in str(error.value)


@pytest.mark.usefixtures("tier")
@pytest.mark.parametrize("tier", ["compiled", "uncompiled"], indirect=True)
@pytest.mark.parametrize("length", [5, 192])
@pytest.mark.parametrize("operator", [EFFICIENT, OVERRIDEABLE], ids=str)
def test_heads_that_share_keys_and_values(operator: Any, length: int) -> None:
    """Of a function they come repeated; an operator called by name takes them as they are."""
    generator = torch.Generator().manual_seed(0)
    heads = (4, 2, 2)
    given = [torch.randn(2, n, length, 8, generator=generator) for n in heads]
    more = (None, True) if operator is EFFICIENT else ()
    found = operator(*(one.to("tpu") for one in given), *more)[0]
    expected = F.scaled_dot_product_attention(*given, enable_gqa=True)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
