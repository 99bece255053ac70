"""Fixtures that several files of the device's tests use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from tests.device.helpers import DEVICE, host_calls, recorder


@pytest.fixture
def uncompiled() -> Iterator[Callable[..., torch.Tensor]]:
    """Makes a device tensor; in the test calls run uncompiled."""
    with recorder(tier="uncompiled"):

        def make(*shape: int) -> torch.Tensor:
            generator = torch.Generator().manual_seed(len(shape))
            with torch.no_grad():
                return torch.randn(shape, generator=generator).to(DEVICE) + 0.0

        assert host_calls(lambda: make(2)) > 0, "the fixture's tensors are recorded"
        yield make
