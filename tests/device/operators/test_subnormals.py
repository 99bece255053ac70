"""Subnormal numbers count as zero in whatever computes, in every way in which a call can run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import fuse
from fuse.backends.subnormals import FlushedSubnormals
from tests.device.helpers import DEVICE, host_calls, host_only_, mode, recorder

TINY = 1e-40
MANY = 1 << 17
"""Elements of calls that PyTorch's CPU kernels share between threads."""


def positive(length: int = 2) -> bool:
    x = torch.full((length,), 2.0)
    x[::2] = TINY
    return bool((x.to(DEVICE) > 0).all())


def flushes() -> bool:
    """Whether this thread, or one of PyTorch's own, counts them as zero in CPU programs."""
    x = torch.full((MANY,), 2.0).mul_(2.0**-130)
    return not bool((x > 0).all())


def test_in_each_mode(mode: str) -> None:
    assert [positive() for _ in range(6)] == [False] * 6
    assert positive(MANY) is False
    assert not flushes()


def test_on_numpy() -> None:
    with fuse.FusedEager(backend="numpy"):
        assert [positive() for _ in range(6)] == [False] * 6
    assert not flushes()


def test_uncompiled() -> None:
    with recorder(tier="uncompiled"):
        assert host_calls(lambda: [positive() for _ in range(4)]) > 0
        assert positive() is False
    assert not flushes()


@pytest.mark.parametrize("length", [7, MANY])
def test_uncompiled_calls_of_each_form(
    uncompiled: Callable[..., torch.Tensor], length: int
) -> None:
    x = uncompiled(length)
    x[:] = torch.full((length,), TINY)
    found: list[torch.Tensor] = []
    assert host_calls(lambda: found.extend([x > 0, x * 2, x + x])) > 0  # boxed, and unboxed
    assert not any(bool(result.any()) for result in found)
    assert not flushes()


@pytest.mark.filterwarnings("ignore:.*host_only_ runs on the host")
@pytest.mark.parametrize("length", [2, MANY])
def test_on_the_host(length: int) -> None:
    x = torch.full((length,), TINY).to(DEVICE)
    host_only_(x)  # doubles it
    assert not x.cpu().view(torch.int32).any()
    assert not flushes()


def test_of_constants() -> None:
    """What XLA works out while it compiles."""
    x = torch.full((3,), TINY, device=DEVICE)
    assert (x > 0).tolist() == [False] * 3
    with mode("strict"):
        assert (torch.full((3,), TINY, device=DEVICE) * 2 > 0).tolist() == [False] * 3


def test_what_is_moved_keeps_its_bits() -> None:
    x = torch.tensor([TINY, -TINY])
    assert x.to(DEVICE).tolist() == x.tolist()
    assert x.to(DEVICE).flip(0).tolist() == x.flip(0).tolist()
    assert x.to(DEVICE).view(torch.int32).tolist() == x.view(torch.int32).tolist()


def test_half_precision_has_numbers_there() -> None:
    """float16's subnormals are numbers of the float32 that it is computed in."""
    x = torch.tensor([6e-8, 3e-6], dtype=torch.float16)
    assert (x.to(DEVICE) * 2).tolist() == (x * 2).tolist()


def test_the_block_restores_what_it_found() -> None:
    for before in (True, False):
        torch.set_flush_denormal(before)
        try:
            with FlushedSubnormals():
                assert np.float32(TINY) * np.float32(1) == 0
            assert (np.float32(TINY) * np.float32(1) == 0) == before
        finally:
            torch.set_flush_denormal(False)


def test_a_users_own_setting_stays() -> None:
    torch.set_flush_denormal(True)
    try:
        with recorder(tier="uncompiled"):
            assert [positive() for _ in range(6)] == [False] * 6
        assert flushes()
    finally:
        torch.set_flush_denormal(False)
