"""Operators that PyTorch's operator database has no entry of, and so no sweep over it meets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributions as D  # noqa: N812 (its everyday name)

import fuse
from tests.device.helpers import DEVICE

WINDOWS = ("bartlett", "blackman", "hamming", "hann", "kaiser")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str, periodic: bool, dtype: torch.dtype) -> None:
    make = getattr(torch, f"{name}_window")
    for length in (0, 1, 2, 7, 10):
        found = make(length, periodic, dtype=dtype, device=DEVICE)
        expected = make(length, periodic, dtype=torch.float64)
        assert found.device.type == "tpu" and found.dtype == dtype
        # In bfloat16 PyTorch's CPU kernels are up to 0.011 off: each of its steps is rounded.
        error = {torch.float64: 1e-10, torch.float32: 1e-6, torch.bfloat16: 0.01}[dtype]
        torch.testing.assert_close(found.cpu().double(), expected, rtol=error, atol=error)
    torch.testing.assert_close(make(9, device=DEVICE).cpu(), make(9))


def test_kaisers_window_of_other_steepness_and_into_another_tensor() -> None:
    for beta in (0.0, 8.6):
        found = torch.kaiser_window(12, False, beta, device=DEVICE)
        torch.testing.assert_close(found.cpu(), torch.kaiser_window(12, False, beta))
    into = torch.empty(12, device=DEVICE)
    torch.ops.aten.kaiser_window.beta_out(12, False, 8.6, out=into)
    torch.testing.assert_close(into.cpu(), torch.kaiser_window(12, False, 8.6))


def test_a_kaiser_window_that_cannot_be_says_why() -> None:
    with pytest.raises(RuntimeError, match="expects floating point dtypes, got: torch.int32"):
        torch.kaiser_window(9, dtype=torch.int32, device=DEVICE)
    with pytest.raises(RuntimeError, match="non-negative window_length, got window_length=-9"):
        torch.kaiser_window(-9, device=DEVICE)


@pytest.mark.parametrize("transposed", [False, True])
def test_torchscripts_convolution(transposed: bool) -> None:
    def program(device: str | torch.device) -> list[torch.Tensor]:
        torch.manual_seed(0)
        x, w = (torch.randn(2, 3, 6, 6).to(device), torch.randn(3, 3, 3, 3).to(device))
        x.requires_grad_()
        w.requires_grad_()
        window = ([1, 1], [1, 1], [1, 1], transposed, [0, 0], 1)
        found = torch._convolution(x, w, None, *window, False, False, True, True)
        found.square().sum().backward()
        assert x.grad is not None
        assert w.grad is not None
        return [found.detach().cpu(), x.grad.cpu(), w.grad.cpu()]

    torch.testing.assert_close(program(DEVICE), program("cpu"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 3, 2, 3), (1, 3, 2, 2), (1, 3, 4, 3)])
def test_a_resize_takes_its_memory_format(shape: tuple[int, ...]) -> None:
    """Of the same sizes too: the memory stays, and is seen in another order."""
    x = torch.arange(18.0).reshape(1, 3, 2, 3)
    for form in (torch.contiguous_format, torch.channels_last):
        found = x.to(DEVICE).clone().resize_(shape, memory_format=form)
        expected = x.clone().resize_(shape, memory_format=form)
        assert found.stride() == expected.stride()
        known = min(found.numel(), x.numel())
        for one in (found, expected):
            assert one.as_strided((known,), (1,)).cpu().tolist() == x.flatten()[:known].tolist()
    with pytest.raises(RuntimeError, match="Unsupported memory format Preserve"):
        x.to(DEVICE).resize_(shape, memory_format=torch.preserve_format)


DISTRIBUTIONS: dict[str, Callable[[torch.Tensor], D.Distribution]] = {
    "Beta": lambda one: D.Beta(one, one * 2),
    "Binomial": lambda one: D.Binomial(20, one * 0.3),
    "Dirichlet": lambda one: D.Dirichlet(one * torch.ones(3, device=DEVICE)),
    "Gamma": lambda one: D.Gamma(one, one),
    "Poisson": lambda one: D.Poisson(one * 30),
    "StudentT": lambda one: D.StudentT(one * 3),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_distribution_is_drawn_on_the_device(name: str) -> None:
    torch.manual_seed(0)
    fuse.reset_stats()
    distribution = DISTRIBUTIONS[name](torch.ones((), device=DEVICE))
    drawn = distribution.sample((4000,)).cpu()
    assert fuse.stats()["host_fallbacks"] == {}
    error = 6 * (distribution.variance.cpu() / 4000).sqrt()
    assert ((drawn.mean(0) - distribution.mean.cpu()).abs() < error).all()


def test_a_gammas_gradient_is_of_the_device() -> None:
    torch.manual_seed(0)
    fuse.reset_stats()
    alpha = torch.tensor([0.5, 2.0], device=DEVICE, requires_grad=True)
    D.Gamma(alpha, torch.ones_like(alpha)).rsample((4000,)).mean(0).sum().backward()
    assert alpha.grad is not None
    assert fuse.stats()["host_fallbacks"] == {}
    torch.testing.assert_close(alpha.grad.cpu(), torch.ones(2), rtol=0.1, atol=0)  # of the mean
