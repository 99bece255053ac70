"""``torch.nn.attention.sdpa_kernel``: which kernel of attention runs, and that values stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from tests.device.accelerator.alike import assert_same_error
from tests.device.helpers import DEVICE, recorder

NONE = "No viable backend for scaled_dot_product_attention was found"
KERNELS = (
    SDPBackend.OVERRIDEABLE,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
)
"""Names by which a program may ask for the device's one kernel."""


class Noted(TorchDispatchMode):
    """Notes the names of the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.fixture(params=["compiled", "uncompiled"])
def tier(request: pytest.FixtureRequest) -> Iterator[None]:
    with recorder(tier=request.param):
        yield


def operands(device: torch.device, length: int = 6) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(2, 2, length, 8, generator=generator) for _ in range(3)]
    return [one.to(device) for one in made]


@pytest.mark.usefixtures("tier")
@pytest.mark.parametrize("backend", [SDPBackend.MATH, *KERNELS], ids=str)
def test_values_and_gradients_are_the_same_by_any_kernel(backend: SDPBackend):
    reference = [one.requires_grad_() for one in operands(torch.device("cpu"))]
    expected = F.scaled_dot_product_attention(*reference, is_causal=True)
    expected.square().sum().backward()
    for _ in range(7):
        given = [one.requires_grad_() for one in operands(DEVICE)]
        with sdpa_kernel(backend):
            with torch.no_grad():
                plain = F.scaled_dot_product_attention(*given, is_causal=True)
            found = F.scaled_dot_product_attention(*given, is_causal=True)
            found.square().sum().backward()
        for one in (plain, found.detach()):
            torch.testing.assert_close(one.cpu(), expected.detach(), rtol=1e-4, atol=1e-5)
        for one, other in zip(given, reference, strict=True):
            torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", [None, SDPBackend.MATH, *KERNELS], ids=str)
def test_the_kernel_that_is_asked_for_is_the_one_that_runs(backend: SDPBackend | None):
    kernel = "_scaled_dot_product_fused_attention_overrideable"
    given = operands(DEVICE)
    with Noted() as noted:
        if backend is None:
            F.scaled_dot_product_attention(*given)
        else:
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(*given)
    assert (kernel in noted.names) == (backend is not SDPBackend.MATH)
    assert any("softmax" in name for name in noted.names) == (backend is SDPBackend.MATH)


@pytest.mark.usefixtures("tier")
@pytest.mark.parametrize("backends", [[], [SDPBackend.CUDNN_ATTENTION]], ids=str)
def test_where_no_kernel_is_left_there_is_an_error(backends: list[SDPBackend]):
    def attend(device: torch.device) -> None:
        with sdpa_kernel(backends or [SDPBackend.ERROR]):
            F.scaled_dot_product_attention(*operands(device))

    for _ in range(3):
        with pytest.raises(RuntimeError, match=NONE):
            attend(torch.device("cpu"))
        with pytest.raises(RuntimeError, match=NONE):
            attend(DEVICE)
    assert F.scaled_dot_product_attention(*operands(DEVICE)).isfinite().all().item()


@pytest.mark.usefixtures("tier")
def test_what_the_kernel_does_not_compute_is_written_out_where_that_is_allowed():
    given = operands(DEVICE)
    with sdpa_kernel([SDPBackend.OVERRIDEABLE, SDPBackend.MATH]):
        dropped = F.scaled_dot_product_attention(*given, dropout_p=0.5)
        flat = F.scaled_dot_product_attention(*(one[0, 0] for one in given))
    assert dropped.shape == given[0].shape
    expected = F.scaled_dot_product_attention(*(one[0, 0].cpu() for one in given))
    torch.testing.assert_close(flat.cpu(), expected, rtol=1e-4, atol=1e-5)
    with sdpa_kernel(SDPBackend.OVERRIDEABLE), pytest.raises(RuntimeError, match=NONE):
        F.scaled_dot_product_attention(*given, dropout_p=0.5)


def test_blocks_nest_and_an_exception_leaves_them():
    given = operands(DEVICE)

    def chosen() -> int:
        return torch._fused_sdp_choice(*given)

    fused, math = SDPBackend.OVERRIDEABLE.value, SDPBackend.MATH.value
    found = [chosen()]
    with sdpa_kernel(SDPBackend.MATH):
        found.append(chosen())
        with pytest.raises(KeyError), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            found.append(chosen())
            raise KeyError
        found.append(chosen())
    assert [*found, chosen()] == [fused, math, fused, math, fused]


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], ids=str)
def test_a_compiled_function_chooses_too(backend: SDPBackend):
    @torch.compile(backend="tpu", fullgraph=True)
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True) * 2

    expected = F.scaled_dot_product_attention(*operands(torch.device("cpu")), is_causal=True) * 2
    for _ in range(3):
        found = attend(*operands(DEVICE))
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_wrong_operands_are_refused_as_on_the_cpu():
    def attend(device: torch.device) -> None:
        q, k, v = operands(device)
        F.scaled_dot_product_attention(q, k.double(), v)

    assert_same_error(attend, "Expected query, key, and value to have the same dtype")
