"""Fixtures that several files of the device's tests use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from fuse.engine.host_calls import ShapeCapWarning
from tests.device.helpers import DEVICE, host_calls, recorder


@pytest.fixture
def ragged() -> Iterator[Callable[..., torch.Tensor]]:
    """Makes a device tensor that counts as one of a changing shape."""
    with recorder(shape_cap=2):
        with pytest.warns(ShapeCapWarning, match="runs uncompiled"):
            for length in range(2, 9):
                zero = torch.ones(length, device=DEVICE).cumsum(0)[:1] * 0
                zero.sum().item()

        def make(*shape: int) -> torch.Tensor:
            generator = torch.Generator().manual_seed(len(shape))
            with torch.no_grad():
                return torch.randn(shape, generator=generator).to(DEVICE) + zero.sum()

        assert host_calls(lambda: make(2)) > 0, "the fixture's tensors are recorded"
        yield make
