"""Calls of many elements, of which the CPU's kernel is asked with fewer."""

from __future__ import annotations

import pytest
import torch

import fuse
from tests.device.helpers import DEVICE
from tests.lanes import only_in

pytestmark = only_in("accelerator", reason="else the host runs what is new, and counts nothing")


@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize(("start", "stop"), [(0, -1), (1, None), (-3, None), (2, -2), (0, 12)])
def test_the_gradient_of_a_slice_is_not_refused(dim: int, start: int, stop: int | None) -> None:
    """Its start and end are of all elements; with fewer they are of another slice."""

    def gradient(x: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_()
        index = (*[slice(None)] * dim, slice(start, stop))
        return torch.autograd.grad((x[index] * 2).sum(), x)[0]

    x = torch.randn(17, 1, 33, 8)
    fuse.reset_stats()
    assert torch.equal(gradient(x.to(DEVICE)).cpu(), gradient(x))
    assert fuse.stats()["host_fallbacks"] == {}


def test_what_is_wrong_with_a_dtype_is_still_said_at_the_call() -> None:
    x = torch.ones(17, 1, 33, 8, dtype=torch.bool, device=DEVICE)
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        x.kthvalue(2, 2)
